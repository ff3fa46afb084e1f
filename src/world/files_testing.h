// For tests only: what every Files must do. Each world runs the suite on its own disk.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "world/files.h"

namespace rubato {

// A fixture has `Files& files()` and `std::string root()`, an empty folder of an absolute path.
template <class Fixture>
class FilesContract : public Fixture {
 protected:
  void file(const std::string& name, const std::string& bytes) {
    this->files().open_append(this->root() + "/" + name)->append(bytes);
  }
  std::string at(const std::string& name) { return this->root() + "/" + name; }

  template <class Do>
  static std::string code_of(Do&& action) {
    try {
      action();
    } catch (const Error& error) {
      return std::string(to_string(error.code));
    }
    return "none";
  }
  static std::string code(ErrorCode code) { return std::string(to_string(code)); }

  std::string listing(const std::string& folder) {
    std::string text;
    for (const Files::Entry& entry : this->files().list(folder)) {
      static constexpr const char* kKinds[] = {"file", "folder", "link", "other"};
      text += entry.name + ":" + kKinds[static_cast<int>(entry.kind)] + ":" + std::to_string(entry.size) +
               (entry.executable ? ":x" : "") + (entry.target.empty() ? "" : ":" + entry.target) + " ";
    }
    return text;
  }
};

TYPED_TEST_SUITE_P(FilesContract);

TYPED_TEST_P(FilesContract, ListsByNameWithoutFollowingLinks) {
  Files& files = this->files();
  this->file("b", "four");
  files.make_folders(this->at("c/deep"));
  this->file("c/deep/x", "1");
  files.make_folders(this->at("c-"));
  files.make_link("c/deep", this->at("a"));
  files.make_link("nowhere", this->at("d"));
  this->file("run", "");
  files.set_mode(this->at("run"), 0755);
  EXPECT_EQ(this->listing(this->root()),
            "a:link:0:c/deep b:file:4 c:folder:0 c-:folder:0 d:link:0:nowhere run:file:0:x ");
  EXPECT_EQ(this->listing(this->at("c")), "deep:folder:0 ");
  files.set_mode(this->at("run"), 0644);
  EXPECT_EQ(this->listing(this->at("a")), "x:file:1 ");
  EXPECT_FALSE(files.list(this->root()).back().executable);
}

TYPED_TEST_P(FilesContract, SaysThatAFolderIsNotThere) {
  this->file("b", "");
  EXPECT_EQ(this->code_of([&] { this->files().list(this->at("none")); }), this->code(ErrorCode::kNotFound));
  EXPECT_EQ(this->code_of([&] { this->files().list(this->at("b")); }), this->code(ErrorCode::kNotFound));
}

TYPED_TEST_P(FilesContract, ReadsRanges) {
  this->file("f", "0123456789");
  Files& files = this->files();
  EXPECT_EQ(files.read_range(this->at("f"), 0, 4), "0123");
  EXPECT_EQ(files.read_range(this->at("f"), 8, 4), "89");
  EXPECT_EQ(files.read_range(this->at("f"), 10, 4), "");
  EXPECT_EQ(files.read_range(this->at("f"), 99, 4), "");
  EXPECT_EQ(this->code_of([&] { files.read_range(this->at("g"), 0, 1); }), this->code(ErrorCode::kNotFound));
}

TYPED_TEST_P(FilesContract, AReaderKeepsTheFileThatItOpened) {
  this->file("f", "0123456789");
  this->file("new", "other");
  Files& files = this->files();
  const auto reader = files.open_read(this->at("f"));
  EXPECT_EQ(reader->size(), 10u);
  EXPECT_FALSE(reader->executable());
  EXPECT_EQ(reader->read(4), "0123");
  files.rename(this->at("new"), this->at("f"));
  EXPECT_EQ(reader->read(99), "456789");
  EXPECT_EQ(reader->read(99), "");
  EXPECT_EQ(files.read(this->at("f")), "other");
}

TYPED_TEST_P(FilesContract, AReaderWantsAPlainFile) {
  Files& files = this->files();
  this->file("f", "");
  files.make_folders(this->at("folder"));
  files.make_link("f", this->at("link"));
  EXPECT_EQ(this->code_of([&] { files.open_read(this->at("none")); }), this->code(ErrorCode::kNotFound));
  EXPECT_EQ(this->code_of([&] { files.open_read(this->at("folder")); }), this->code(ErrorCode::kFailed));
  EXPECT_EQ(this->code_of([&] { files.open_read(this->at("link")); }), this->code(ErrorCode::kFailed));
}

TYPED_TEST_P(FilesContract, LinksLeadSomewhereAndAreRemovedAlone) {
  Files& files = this->files();
  files.make_folders(this->at("real"));
  this->file("real/f", "bytes");
  files.make_link("real", this->at("link"));
  EXPECT_EQ(files.read(this->at("link/f")), "bytes");
  EXPECT_EQ(this->code_of([&] { files.make_link("x", this->at("link")); }), this->code(ErrorCode::kConflict));
  files.remove_tree(this->at("link"));
  EXPECT_EQ(files.read(this->at("real/f")), "bytes");
  EXPECT_EQ(this->listing(this->root()), "real:folder:0 ");
}

TYPED_TEST_P(FilesContract, RenamesFilesAndWholeFolders) {
  Files& files = this->files();
  files.make_folders(this->at("a/empty"));
  this->file("a/f", "1");
  files.make_link("f", this->at("a/l"));
  files.make_folders(this->at("b"));
  files.rename(this->at("a"), this->at("b"));  // an empty folder gives way
  EXPECT_EQ(this->listing(this->root()), "b:folder:0 ");
  EXPECT_EQ(this->listing(this->at("b")), "empty:folder:0 f:file:1 l:link:0:f ");
  files.make_folders(this->at("c"));
  EXPECT_EQ(this->code_of([&] { files.rename(this->at("c"), this->at("b")); }), this->code(ErrorCode::kConflict));
  this->file("f", "2");
  EXPECT_EQ(this->code_of([&] { files.rename(this->at("f"), this->at("b")); }), this->code(ErrorCode::kConflict));
  EXPECT_EQ(this->code_of([&] { files.rename(this->at("none"), this->at("x")); }), this->code(ErrorCode::kNotFound));
  files.rename(this->at("f"), this->at("b/l"));  // the link goes, not what it points to
  EXPECT_EQ(files.read(this->at("b/l")), "2");
  EXPECT_EQ(files.read(this->at("b/f")), "1");
}

REGISTER_TYPED_TEST_SUITE_P(FilesContract, ListsByNameWithoutFollowingLinks, SaysThatAFolderIsNotThere, ReadsRanges,
                            AReaderKeepsTheFileThatItOpened, AReaderWantsAPlainFile,
                            LinksLeadSomewhereAndAreRemovedAlone, RenamesFilesAndWholeFolders);

}  // namespace rubato
