#include "archive/package.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

#include "archive/archive_testing.h"
#include "archive/codec.h"
#include "core/sha256.h"
#include "sim/files.h"
#include "sim/simulation.h"

namespace rubato::archive {
namespace {

using Tree = std::map<std::string, std::string>;

class PackageTest : public DiskTest {
 protected:
  Package pack_it(const std::string& folder = "in", const PackOptions& options = {}) {
    return pack(files_, at(folder), at("p.tar.zst"), options);
  }
  Tree unpack_it(const std::string& hash) {
    files_.remove_tree(at("out"));
    unpack(files_, at("p.tar.zst"), hash, at("out"));
    return tree("out");
  }
  Tree through(const PackOptions& options = {}) { return unpack_it(pack_it("in", options).hash); }
  std::vector<std::string> names_at_root() {
    std::vector<std::string> names;
    for (const Files::Entry& entry : files_.list(root_)) names.push_back(entry.name);
    return names;
  }
  void write_gzip(const std::string& path, const std::string& bytes) {
    gzFile file = gzopen(at(path).c_str(), "wb");
    ASSERT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())), static_cast<int>(bytes.size()));
    ASSERT_EQ(gzclose(file), Z_OK);
  }
};

template <class Do>
Error error_of(Do&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(ErrorCode::kFailed, "no error");
}

TEST_F(PackageTest, WhatCannotBeReadIsNamedWithTheWayOut) {
  file("in/train.py", "print()\n");
  file("in/secret/key", "k");
  ASSERT_EQ(chmod(root_.c_str(), 0777), 0);
  ASSERT_EQ(chmod(at("in/secret").c_str(), 0), 0);
  const uid_t me = geteuid();
  const auto become = [me](uid_t user) { return me != 0 || seteuid(user) == 0; };
  ASSERT_TRUE(become(65534)) << "root may read everything";
  const Error error = error_of([&] { pack_it(); });
  ASSERT_TRUE(become(me));
  ASSERT_EQ(chmod(at("in/secret").c_str(), 0755), 0);
  EXPECT_NE(error.message.find("Permission denied"), std::string::npos) << error.message;
  EXPECT_EQ(error.hint, "make it readable, or leave it out: write /secret into .rubatoignore");
}

TEST_F(PackageTest, ComesOutAsItWentIn) {
  file("in/train.py", "print()\n");
  file("in/run.sh", "#!/bin/sh\n", true);
  file("in/empty");
  file("in/lib/na\xc3\xafve \xe6\xa8\xa1\xe5\x9e\x8b.txt", "unicode");
  file("in/" + std::string(120, 'n') + "/" + std::string(200, 'm') + "/" + std::string(255, 'o'), "long");
  file("in/" + std::string(99, 'p') + "/x", "split");
  file("in/two-pieces", std::string(700'000, 'z') + "end");
  files_.make_folders(at("in/nothing/in/here"));
  link("in/latest", "lib");
  link("in/lib/up", "../train.py");
  link("in/dangling", "not/there");
  const Package package = pack_it();
  EXPECT_EQ(unpack_it(package.hash), tree("in"));
  EXPECT_EQ(package.counts.files, 7u);
  EXPECT_EQ(package.counts.folders, 8u - 1u);
  EXPECT_EQ(package.counts.links, 3u);
  EXPECT_EQ(package.counts.content_bytes, 8u + 10 + 7 + 4 + 5 + 700'003);
  EXPECT_TRUE(package.left_out.empty());
  EXPECT_EQ(package.hash, sha256_hex(*files_.read(at("p.tar.zst"))));
  EXPECT_EQ(package.bytes, files_.read(at("p.tar.zst"))->size());
  EXPECT_EQ(hash_of_file(files_, at("p.tar.zst")), package.hash);
  EXPECT_EQ(names_at_root(), (std::vector<std::string>{"in", "out", "p.tar.zst"}));  // no draft is left
}

TEST_F(PackageTest, MayBeEmpty) {
  files_.make_folders(at("in"));
  const Package package = pack_it();
  EXPECT_EQ(unpack_it(package.hash), Tree());
  EXPECT_EQ(package.counts.files + package.counts.folders + package.counts.links, 0u);
}

TEST_F(PackageTest, TheSameTreeHasTheSameHash) {
  for (const char* folder : {"in", "in2"}) {
    // Other order, other times, other permissions of those who do not matter.
    const bool second = folder == std::string("in2");
    const std::string base = folder;
    if (second) files_.make_folders(at("in2/d"));
    file(base + (second ? "/b" : "/a"), second ? "2" : "1");
    file(base + (second ? "/a" : "/b"), second ? "1" : "2");
    files_.make_folders(at(base + "/d"));
    link(base + "/l", "a");
  }
  files_.set_mode(at("in2/a"), 0600);
  files_.set_mode(at("in2/d"), 0700);
  std::filesystem::last_write_time(at("in2/a"), std::filesystem::file_time_type());
  const Package first = pack_it("in"), second = pack_it("in2");
  EXPECT_EQ(first.hash, second.hash);
  file("in2/a", "1", true);
  EXPECT_NE(pack_it("in2").hash, first.hash);
  file("in2/a", "1");
  EXPECT_EQ(pack_it("in2").hash, first.hash);
  file("in2/c");
  EXPECT_NE(pack_it("in2").hash, first.hash);
}

TEST_F(PackageTest, ObeysIgnoreFiles) {
  file("in/.gitignore", "*.ckpt\nout/\n");
  file("in/.rubatoignore", "!needed.ckpt\ndata/\n");
  file("in/a.py", "");
  file("in/__pycache__/a.pyc");
  file("in/.git/config");
  file("in/x.ckpt");
  file("in/needed.ckpt");
  file("in/out/a");
  file("in/data/b");
  file("in/sub/.gitignore", "!x.ckpt\n/a.py\n");
  file("in/sub/x.ckpt");
  file("in/sub/a.py");
  Tree names = through();
  EXPECT_EQ(names.size(), 7u);
  for (const char* kept :
       {".gitignore", ".rubatoignore", "a.py", "needed.ckpt", "sub", "sub/.gitignore", "sub/x.ckpt"}) {
    EXPECT_TRUE(names.contains(kept)) << kept;
  }
  PackOptions all;
  all.ignore_files = false;
  EXPECT_EQ(through(all), tree("in"));
}

TEST_F(PackageTest, AFolderOfARepositoryObeysTheFilesAboveIt) {
  file("repo/.git/info/exclude", "secret\n");
  file("repo/.gitignore", "*.bin\n/in/b\n/jobs/in/c\n");
  file("repo/jobs/.gitignore", "d\n!e.bin\n");
  for (const char* name : {"a.bin", "b", "c", "d", "e.bin", "secret", "kept"})
    file("repo/jobs/in/" + std::string(name));
  const Tree names = unpack_it(pack_it("repo/jobs/in").hash);
  EXPECT_EQ(names, (Tree{{"b", "file:"}, {"e.bin", "file:"}, {"kept", "file:"}}));
}

TEST_F(PackageTest, TakesOnlyWhatIsNamed) {
  file("in/train.py", "1");
  file("in/other.py", "2");
  file("in/lib/a.py", "3");
  file("in/lib/b.py", "4");
  file("in/lib/deep/c.py", "5");
  file("in/lib/deep/d.pyc", "6");
  file("in/.gitignore", "train.py\n");
  PackOptions options;
  options.only = {"./train.py", "lib/deep/", "lib/b.py"};
  EXPECT_EQ(through(options), (Tree{{"train.py", "file:1"},
                                    {"lib", "folder"},
                                    {"lib/b.py", "file:4"},
                                    {"lib/deep", "folder"},
                                    {"lib/deep/c.py", "file:5"}}));
  options.only = {"lost.py"};
  EXPECT_EQ(error_of([&] { pack_it("in", options); }).code, ErrorCode::kNotFound);
  for (const char* bad : {"../x", "/etc/passwd", "a/../b", ""}) {
    options.only = {bad};
    EXPECT_EQ(error_of([&] { pack_it("in", options); }).code, ErrorCode::kUsage) << bad;
  }
}

TEST_F(PackageTest, TakesWhatIsNeededWhateverIgnoreFilesSay) {
  file("in/.gitignore", "runs/\n*.tmp.py\n");
  file("in/runs/new/train.py", "1");
  file("in/runs/new/other.py", "2");
  file("in/runs/old/train.py", "3");
  file("in/lib.py", "4");
  PackOptions options;
  options.needed = "runs/new/train.py";
  const Package package = pack_it("in", options);
  const Tree tree = unpack_it(package.hash);
  EXPECT_EQ(tree, (Tree{{".gitignore", "file:runs/\n*.tmp.py\n"},
                        {"lib.py", "file:4"},
                        {"runs", "folder"},
                        {"runs/new", "folder"},
                        {"runs/new/train.py", "file:1"}}));
  EXPECT_EQ(package.left_out,
            std::vector<std::string>{"'runs' is left out by an ignore file, but for 'runs/new/train.py'"});
  file("in/a.tmp.py", "5");
  file("in/b.tmp.py", "6");
  options.needed = "a.tmp.py";
  const Tree other = through(options);
  EXPECT_TRUE(other.contains("a.tmp.py"));
  EXPECT_FALSE(other.contains("b.tmp.py"));
  EXPECT_FALSE(other.contains("runs"));
}

TEST_F(PackageTest, SaysWhatItCannotPack) {
  file("in/a");
  link("in/data", "/mnt/data");
  link("in/up", "../other");
  file("in/odd\nname");
  ASSERT_EQ(mkfifo(at("in/pipe").c_str(), 0600), 0);
  const Package package = pack_it();
  EXPECT_EQ(unpack_it(package.hash), (Tree{{"a", "file:"}}));
  ASSERT_EQ(package.left_out.size(), 4u);
  EXPECT_EQ(package.left_out[0],
            "'data -> /mnt/data' is left out: it points outside of the folder: its target is absolute");
}

TEST_F(PackageTest, NamesTheLargestWhenItIsTooLarge) {
  file("in/train.py", "small");
  file("in/model.bin", std::string(4000, 'm'));
  for (int i = 0; i < 30; ++i) file("in/data/train/" + std::to_string(i), std::string(100, 'd'));
  file("in/data/index", std::string(10, 'i'));
  PackOptions options;
  options.size_max = 6000;
  const Error error = error_of([&] { pack_it("in", options); });
  EXPECT_EQ(error.code, ErrorCode::kUsage);
  EXPECT_NE(error.message.find("6.9 KiB, at most 5.9 KiB"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find("the largest: model.bin 3.9 KiB, data/train/ 2.9 KiB, data/train/0 100 B"),
            std::string::npos)
      << error.message;
  EXPECT_EQ(std::count(error.message.begin(), error.message.end(), ','), 1 + 9);
  EXPECT_NE(error.hint.find(".rubatoignore"), std::string::npos);
  EXPECT_NE(error.hint.find("/model.bin"), std::string::npos);
  EXPECT_FALSE(files_.exists(at("p.tar.zst")));
  file("in/.rubatoignore", "/model.bin");
  EXPECT_FALSE(through(options).contains("model.bin"));

  options.entries_max = 20;
  EXPECT_NE(error_of([&] { pack_it("in", options); }).message.find("at most 20"), std::string::npos);
}

TEST_F(PackageTest, ADamagedOneIsNotUnpacked) {
  file("in/a", std::string(5000, 'a') + "b");
  const Package package = pack_it();
  const std::string good = *files_.read(at("p.tar.zst"));
  for (const std::string& bad : {good.substr(0, good.size() - 1), good + "x", "x" + good.substr(1), std::string()}) {
    files_.write_atomically(at("p.tar.zst"), bad);
    EXPECT_EQ(error_of([&] { unpack_it(package.hash); }).code, ErrorCode::kUsage);
    // And with a hash that fits, it is refused for what it is.
    EXPECT_EQ(error_of([&] { unpack_it(sha256_hex(bad)); }).code, ErrorCode::kUsage);
    EXPECT_EQ(names_at_root(), (std::vector<std::string>{"in", "p.tar.zst"}));
  }
}

TEST_F(PackageTest, IsUnpackedOnce) {
  file("in/a", "1");
  const Package package = pack_it();
  unpack(files_, at("p.tar.zst"), package.hash, at("nodes/packages/x"));  // makes the folders above
  file("nodes/packages/x/mine", "2");
  files_.remove_tree(at("p.tar.zst"));
  unpack(files_, at("p.tar.zst"), package.hash, at("nodes/packages/x"));
  EXPECT_EQ(tree("nodes/packages/x"), (Tree{{"a", "file:1"}, {"mine", "file:2"}}));
}

TEST_F(PackageTest, AFullDiskLeavesNothingBehind) {
  sim::Simulation sim(1, 1);
  sim::ProgramLife life;
  sim::ProgramFiles files(sim.machine(1).disk(), life);
  files.write_atomically("/in/a", std::string(100, 'a'));
  const Package package = pack(files, "/in", "/p.tar.zst");
  sim.machine(1).disk().set_free_bytes(99);
  EXPECT_THROW(unpack(files, "/p.tar.zst", package.hash, "/out"), Error);
  EXPECT_FALSE(files.exists("/out"));
  EXPECT_EQ(files.list("").size(), 2u);
  sim.machine(1).disk().set_free_bytes(1000);
  unpack(files, "/p.tar.zst", package.hash, "/out");
  EXPECT_EQ(files.read("/out/a"), std::string(100, 'a'));
}

TEST_F(PackageTest, TakesATarGzThatAPersonMade) {
  const std::string archive = raw_folder("./") + raw_file("./b", "2") + raw_file("./a.pyc", "1") +
                              raw_link("./c", "b", '1') + raw_file("./d/e", "") + raw_link("./d/l", "../b") + tar_end();
  const Tree expected = {{"a.pyc", "file:1"}, {"b", "file:2"},  {"c", "file:2"},
                         {"d", "folder"},     {"d/e", "file:"}, {"d/l", "link:../b"}};
  write_gzip("p.tar.gz", archive);
  const Package from_gzip = repack(files_, at("p.tar.gz"), at("p.tar.zst"));
  EXPECT_EQ(unpack_it(from_gzip.hash), expected);
  EXPECT_EQ(from_gzip.counts.files, 4u);

  files_.write_atomically(at("plain.tar"), archive);
  EXPECT_EQ(repack(files_, at("plain.tar"), at("p2")).hash, from_gzip.hash);

  std::string zstd;
  ZstdEncoder encoder;
  encoder.add(archive, zstd);
  encoder.finish(zstd);
  files_.write_atomically(at("p.tar.zstd"), zstd);
  EXPECT_EQ(repack(files_, at("p.tar.zstd"), at("p2")).hash, from_gzip.hash);

  const std::string gzip = *files_.read(at("p.tar.gz"));
  write_gzip("half1", archive.substr(0, 700));
  write_gzip("half2", archive.substr(700));
  files_.write_atomically(at("two.tar.gz"), *files_.read(at("half1")) + *files_.read(at("half2")));
  EXPECT_EQ(repack(files_, at("two.tar.gz"), at("p2")).hash, from_gzip.hash);
  files_.write_atomically(at("cut.tar.gz"), gzip.substr(0, gzip.size() - 4));
  EXPECT_EQ(error_of([&] { repack(files_, at("cut.tar.gz"), at("p3")); }).code, ErrorCode::kUsage);
  EXPECT_FALSE(files_.exists(at("p3")));
}

TEST_F(PackageTest, RefusesWhatIsNoTar) {
  using namespace std::string_literals;
  for (const std::string& bytes : {"PK\3\4zip"s,
                                   "\xfd"
                                   "7zXZ"s,
                                   "BZh9"s, "text"s, ""s, "\x1f\x8b garbage"s, "\x28\xb5\x2f\xfd garbage"s}) {
    files_.write_atomically(at("x"), bytes);
    EXPECT_EQ(error_of([&] { repack(files_, at("x"), at("p")); }).code, ErrorCode::kUsage) << bytes;
  }
  EXPECT_EQ(error_of([&] { repack(files_, at("none"), at("p")); }).code, ErrorCode::kNotFound);
  EXPECT_EQ(names_at_root(), std::vector<std::string>{"x"});
}

TEST_F(PackageTest, ABombIsStoppedAtTheLimit) {
  PackOptions options;
  options.size_max = 1 << 20;
  write_gzip("bomb.tar.gz",
             RawHeader{.name = "zeros", .size = octal(16 << 20)}.bytes() + std::string(16 << 20, '\0') + tar_end());
  EXPECT_LT(files_.read(at("bomb.tar.gz"))->size(), 100'000u);
  EXPECT_EQ(error_of([&] { repack(files_, at("bomb.tar.gz"), at("p"), options); }).code, ErrorCode::kUsage);

  // A frame that wants a window of 1 GiB to be decoded: refused before any memory is taken.
  const std::string frame("\x28\xb5\x2f\xfd\x00\xa0\x01\x00\x00", 9);
  files_.write_atomically(at("window.tar.zst"), frame);
  const Error error = error_of([&] { repack(files_, at("window.tar.zst"), at("p")); });
  EXPECT_NE(error.message.find("memory"), std::string::npos) << error.message;
}

}  // namespace
}  // namespace rubato::archive
