#include "archive/folder_stream.h"

#include <filesystem>

#include "archive/archive_testing.h"
#include "core/random.h"

namespace rubato::archive {
namespace {

class FolderStream : public DiskTest {
 protected:
  std::vector<std::string> stream(const std::string& folder) {
    FolderTar tar(files_, at(folder));
    std::vector<std::string> chunks;
    while (std::optional<std::string> chunk = tar.next()) chunks.push_back(std::move(*chunk));
    EXPECT_EQ(tar.next(), std::nullopt);
    return chunks;
  }
};

TEST_F(FolderStream, ComesOutAsItWentIn) {
  Random random(7);
  std::string noise;
  while (noise.size() < 3'000'000) noise += static_cast<char>(random.next());
  file("in/checkpoint.pt", noise);
  file("in/sub/log", "line\n");
  file("in/.gitignore", "*");  // of no concern here
  link("in/last", "checkpoint.pt");
  files_.make_folders(at("in/none"));
  const std::vector<std::string> chunks = stream("in");
  EXPECT_GT(chunks.size(), 3u);
  std::string all;
  for (const std::string& chunk : chunks) {
    EXPECT_GT(chunk.size(), 0u);
    EXPECT_LE(chunk.size(), size_t{1} << 20);
    all += chunk;
  }
  for (const size_t piece : {size_t{1000}, size_t{65'537}, all.size()}) {
    files_.remove_tree(at("out"));
    FolderUntar untar(files_, at("deep/new/out/"));
    for (size_t at = 0; at < all.size(); at += piece) untar.feed(std::string_view(all).substr(at, piece));
    EXPECT_FALSE(files_.exists(at("deep/new/out")));
    untar.finish();
    EXPECT_EQ(untar.bytes(), noise.size() + 6);
    EXPECT_EQ(tree("deep/new/out"), tree("in"));
    files_.remove_tree(at("deep"));
  }
}

TEST_F(FolderStream, ChunksOfZerosAreNotEmptyAndReadLittle) {
  file("in/zeros");
  std::filesystem::resize_file(at("in/zeros"), 40 << 20);
  const std::vector<std::string> chunks = stream("in");
  EXPECT_GE(chunks.size(), 10u);  // at most 4 MiB are read for one
  for (const std::string& chunk : chunks) EXPECT_FALSE(chunk.empty());
}

TEST_F(FolderStream, AnEmptyFolderIsAStreamToo) {
  files_.make_folders(at("in"));
  FolderUntar untar(files_, at("out"));
  for (const std::string& chunk : stream("in")) untar.feed(chunk);
  untar.finish();
  EXPECT_TRUE(files_.list(at("out")).empty());
  FolderTar missing(files_, at("missing"));
  EXPECT_THROW(missing.next(), Error);
}

TEST_F(FolderStream, AFolderThatChangesIsSentAllTheSame) {
  file("in/a", std::string(600'000, 'a'));
  file("in/b", "b");
  file("in/z/c", "c");
  TreeTar plain(files_, at("in"), {}, kStreamLimits);
  std::string bytes = *plain.next();  // the header of "a"
  bytes += *plain.next();             // and its first piece
  files_.write_atomically(at("in/a"), "replaced while it is read");
  files_.remove_tree(at("in/b"));
  files_.remove_tree(at("in/z"));
  while (const std::optional<std::string> piece = plain.next()) bytes += *piece;
  EXPECT_EQ(read_words(bytes), std::vector<std::string>{"file a 600000 " + std::string(600'000, 'a') + "."});
}

TEST_F(FolderStream, AFileThatIsCutShortIsAnError) {
  file("in/a", std::string(600'000, 'a'));
  TreeTar tar(files_, at("in"), {}, kStreamLimits);
  tar.next();
  tar.next();
  std::filesystem::resize_file(at("in/a"), 100);
  EXPECT_THROW(tar.next(), Error);
}

TEST_F(FolderStream, MergesIntoAFolderThatIsThere) {
  file("in/a", "new");
  file("in/sub/b", "new");
  file("in/sub/c", "new");
  file("out/a", "old");
  file("out/sub/b", "old");
  file("out/sub/mine", "mine");
  file("elsewhere", "precious");
  link("out/sub/c", "../../elsewhere");
  FolderUntar untar(files_, at("out"));
  for (const std::string& chunk : stream("in")) untar.feed(chunk);
  untar.finish();
  EXPECT_EQ(tree("out"), (std::map<std::string, std::string>{{"a", "file:new"},
                                                             {"sub", "folder"},
                                                             {"sub/b", "file:new"},
                                                             {"sub/c", "file:new"},
                                                             {"sub/mine", "file:mine"}}));
  EXPECT_EQ(files_.read(at("elsewhere")), "precious");
  EXPECT_EQ(files_.list(root_).size(), 3u);  // no draft
}

TEST_F(FolderStream, DoesNotPutAFileInPlaceOfAFolderNorFollowALink) {
  file("in/a/b", "new");
  for (const bool linked : {false, true}) {
    files_.make_folders(at("out"));
    files_.make_folders(at("elsewhere"));
    if (linked) {
      link("out/a", "../elsewhere");
    } else {
      file("out/a", "a file");
    }
    FolderUntar untar(files_, at("out"));
    for (const std::string& chunk : stream("in")) untar.feed(chunk);
    try {
      untar.finish();
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code, ErrorCode::kConflict);
    }
    EXPECT_TRUE(files_.list(at("elsewhere")).empty());
    files_.remove_tree(at("out"));
  }
}

TEST_F(FolderStream, WhatIsCutOffLeavesNothingBehind) {
  file("in/a", "1");
  std::string all;
  for (const std::string& chunk : stream("in")) all += chunk;
  for (size_t size = 0; size < all.size(); ++size) {
    FolderUntar untar(files_, at("out"));
    untar.feed(std::string_view(all).substr(0, size));
    EXPECT_THROW(untar.finish(), Error) << size;
  }
  EXPECT_EQ(files_.list(root_).size(), 1u);
}

}  // namespace
}  // namespace rubato::archive
