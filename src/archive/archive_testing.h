// For tests only: a real folder to fill, and tar archives made by hand.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "archive/tar.h"
#include "archive/tar_reader.h"
#include "core/error.h"
#include "os/files.h"

namespace rubato::archive {

class DiskTest : public ::testing::Test {
 protected:
  // In memory where there is such a place: thousands of small files take a disk a minute.
  DiskTest()
      : root_(files_.make_temporary_folder(files_.exists("/dev/shm") ? "/dev/shm/rubato-archive-test-"
                                                                     : "rubato-archive-test-")) {}
  ~DiskTest() override { files_.remove_tree(root_); }

  std::string at(const std::string& path) const { return root_ + "/" + path; }
  void file(const std::string& path, const std::string& bytes = "", bool executable = false) {
    const std::string full = at(path);
    files_.make_folders(full.substr(0, full.rfind('/')));
    std::ofstream(full) << bytes;
    files_.set_mode(full, executable ? 0755 : 0644);
  }
  void link(const std::string& path, const std::string& target) { files_.make_link(target, at(path)); }

  // Everything below a folder: path to "file:BYTES", "run:BYTES", "link:TARGET" or "folder".
  std::map<std::string, std::string> tree(const std::string& folder) {
    std::map<std::string, std::string> out;
    add_tree(at(folder), "", out);
    return out;
  }

  os::RealFiles files_;
  const std::string root_;

 private:
  void add_tree(const std::string& real, const std::string& prefix, std::map<std::string, std::string>& out) {
    for (const Files::Entry& entry : files_.list(real)) {
      const std::string path = real + "/" + entry.name;
      std::string& entries = out[prefix + entry.name];
      switch (entry.kind) {
        case Files::Entry::Kind::kFile:
          entries = (entry.executable ? "run:" : "file:") + *files_.read(path);
          break;
        case Files::Entry::Kind::kFolder:
          entries = "folder";
          add_tree(path, prefix + entry.name + "/", out);
          break;
        case Files::Entry::Kind::kLink:
          entries = "link:" + entry.target;
          break;
        case Files::Entry::Kind::kOther:
          entries = "other";
          break;
      }
    }
  }
};

// A header with any fields, its checksum right.
struct RawHeader {
  std::string name;
  char type = '0';
  std::string size = "00000000000";
  std::string target = "";
  std::string magic = std::string("ustar\00000", 8);
  std::string mode = "0000644";
  std::string prefix = "";

  std::string bytes() const {
    std::string block(kTarBlock, '\0');
    const auto put = [&block](size_t at, const std::string& text) { block.replace(at, text.size(), text); };
    put(0, name);
    put(100, mode);
    put(124, size);
    put(148, "        ");
    block[156] = type;
    put(157, target);
    put(257, magic);
    put(345, prefix);
    unsigned sum = 0;
    for (const char c : block) sum += static_cast<unsigned char>(c);
    char digits[8];
    snprintf(digits, sizeof digits, "%06o", sum);
    put(148, std::string(digits, 7));
    return block;
  }
};

inline std::string octal(uint64_t size) {
  char digits[16];
  snprintf(digits, sizeof digits, "%011llo", static_cast<unsigned long long>(size));
  return digits;
}

inline std::string raw_file(const std::string& name, const std::string& bytes) {
  return RawHeader{.name = name, .size = octal(bytes.size())}.bytes() + bytes + tar_padding(bytes.size());
}
inline std::string raw_link(const std::string& name, const std::string& target, char type = '2') {
  return RawHeader{.name = name, .type = type, .target = target}.bytes();
}
inline std::string raw_folder(const std::string& name) { return RawHeader{.name = name, .type = '5'}.bytes(); }
inline std::string raw_extended(char type, const std::string& bytes) {
  return RawHeader{.name = "extended", .type = type, .size = octal(bytes.size())}.bytes() + bytes +
         tar_padding(bytes.size());
}

// Remembers entries as words: "file a 3 abc", "run a 0", "folder b", "link l -> a", "copy c = a".
class WordsSink final : public TarSink {
 public:
  void begin(const TarEntry& entry) override {
    std::string word(to_string(entry.kind));
    if (entry.kind == TarEntry::Kind::kFile && entry.executable) word = "run";
    entries.push_back(word + " " + entry.path);
    if (entry.kind == TarEntry::Kind::kFile) entries.back() += " " + std::to_string(entry.size) + " ";
    if (!entry.target.empty() && entry.kind != TarEntry::Kind::kFile) entries.back() += " -> " + entry.target;
    if (entry.replaces) entries.back() += " again";
  }
  void data(std::string_view bytes) override { entries.back() += bytes; }
  void end() override { entries.back() += "."; }

  std::vector<std::string> entries;
};

// What a reader makes of an archive, given in pieces of this size.
inline std::vector<std::string> read_words(const std::string& archive, const TarLimits& limits = {},
                                           size_t piece = 1 << 20) {
  WordsSink sink;
  TarReader reader("test.tar", limits, sink);
  for (size_t at = 0; at < archive.size(); at += piece) reader.feed(std::string_view(archive).substr(at, piece));
  reader.finish();
  return sink.entries;
}

// Why it is refused; "" when it is not.
inline std::string refusal(const std::string& archive, const TarLimits& limits = {}) {
  try {
    read_words(archive, limits);
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::kUsage);
    EXPECT_EQ(error.where, "test.tar");
    return error.message;
  }
  return "";
}

}  // namespace rubato::archive
