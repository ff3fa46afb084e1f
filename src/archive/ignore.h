// Which files of a folder are left out of a package: the rules of .gitignore, then those of .rubatoignore.
//
// Both have git's syntax (gitignore(5)): a later line wins over an earlier one, a file deeper in the tree over one
// higher up, and what .rubatoignore says over what any .gitignore says. What is in a folder that is left out cannot
// be brought back. `.git`, `__pycache__` and `*.pyc` are always left out.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "archive/glob.h"

namespace rubato::archive {

// One ignore file.
class IgnoreFile {
 public:
  IgnoreFile() = default;
  // Any text is valid; a line that git would not match anything with matches nothing here.
  explicit IgnoreFile(std::string_view text);

  // What the last line that matches says; nullopt when none does. `path` is relative to the ignore file's folder.
  std::optional<bool> ignores(std::string_view path, bool is_folder) const;

 private:
  struct Rule {
    bool keeps;         // began with '!'
    bool folders_only;  // ended with '/'
    bool anywhere;      // has no slash: matched against the last part of the path
    Glob glob;
  };
  std::vector<Rule> rules_;
};

// The ignore files from the root of the tree down to the folder that a walk is in.
class IgnoreStack {
 public:
  // Of a folder above the tree, the highest first, before any enter(): `below` is the path from there to the tree.
  void add_above(const std::string& below, std::string_view gitignore);

  // `folder` is relative to the tree, "" for its root. Each enter() has its leave().
  void enter(const std::string& folder, std::string_view gitignore, std::string_view rubatoignore);
  void leave();

  // Of something in the folder entered last, by its path from the root of the tree.
  bool ignores(const std::string& path, bool is_folder) const;

 private:
  struct Level {
    std::string above;   // put in front of a path of the tree
    size_t folder_size;  // taken off its front
    IgnoreFile git;
    IgnoreFile rubato;
  };
  std::vector<Level> levels_;
};

}  // namespace rubato::archive
