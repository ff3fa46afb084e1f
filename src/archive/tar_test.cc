#include "archive/tar.h"

#include "archive/archive_testing.h"

namespace rubato::archive {
namespace {

using Words = std::vector<std::string>;

std::string written(const TarEntry& entry, const std::string& bytes = "") {
  return tar_header(entry) + bytes + tar_padding(bytes.size());
}

TEST(Tar, ReadsWhatItWritesInPiecesOfAnySize) {
  const std::string archive = written({.path = "a", .kind = TarEntry::Kind::kFile, .size = 3}, "abc") +
                              written({.path = "b", .kind = TarEntry::Kind::kFolder}) +
                              written({.path = "b/run", .size = 0, .executable = true}) +
                              written({.path = "b/link", .kind = TarEntry::Kind::kLink, .target = "../a"}) +
                              written({.path = "block", .size = 512}, std::string(512, 'x')) + tar_end();
  EXPECT_EQ(archive.size() % kTarBlock, 0u);
  const Words expected = {"file a 3 abc.", "folder b", "run b/run 0 .", "link b/link -> ../a",
                          "file block 512 " + std::string(512, 'x') + "."};
  for (const size_t piece : {1, 7, 511, 512, 513, 100'000}) EXPECT_EQ(read_words(archive, {}, piece), expected);
}

TEST(Tar, CarriesLongNamesTargetsAndSizes) {
  const std::string part(200, 'n'), umlaut = "\xc3\xa4";
  for (size_t length = 95; length < 300; ++length) {
    std::string path = std::string(length / 2, 'a') + "/" + std::string(length - length / 2 - 1, 'b');
    EXPECT_EQ(read_words(written({.path = path}) + tar_end()), Words({"file " + path + " 0 ."})) << length;
    EXPECT_EQ(read_words(written({.path = path, .kind = TarEntry::Kind::kFolder}) + tar_end()),
              Words({"folder " + path}));
    EXPECT_EQ(read_words(written({.path = "l", .kind = TarEntry::Kind::kLink, .target = path}) + tar_end()),
              Words({"link l -> " + path}));
  }
  const std::string deep = part + "/" + part + "/" + umlaut + "/" + part;
  EXPECT_EQ(read_words(written({.path = deep}) + tar_end()), Words({"file " + deep + " 0 ."}));

  const uint64_t huge = (uint64_t{1} << 33) + 5;  // over what the octal field can say
  WordsSink sink;
  TarReader reader("test.tar", {.bytes_max = huge}, sink);
  reader.feed(tar_header({.path = "huge", .size = huge}));
  EXPECT_EQ(sink.entries, Words({"file huge 8589934597 "}));
}

TEST(TarReader, ReadsOtherDialects) {
  const std::string gnu("ustar  \0", 8);
  const std::string name(300, 'n'), target(150, 't');
  const std::string split_name = name.substr(0, 150) + "/" + name.substr(0, 140);
  EXPECT_EQ(read_words(raw_extended('L', split_name + '\0') + raw_extended('K', target + '\0') +
                       RawHeader{.name = "cut", .type = '2', .target = "cut", .magic = gnu}.bytes() + tar_end()),
            Words({"link " + split_name + " -> " + target}));
  EXPECT_EQ(read_words(RawHeader{.name = "v7", .type = '\0', .magic = std::string(8, '\0')}.bytes() +
                       RawHeader{.name = "old/", .type = '\0', .magic = std::string(8, '\0')}.bytes() + tar_end()),
            Words({"file v7 0 .", "folder old"}));
  EXPECT_EQ(read_words(raw_folder("./") + raw_file("./a//b/c", "1") + raw_link("./d", "./a//b/c", '1') + tar_end()),
            Words({"file a/b/c 1 1.", "hard link d -> a/b/c"}));
  EXPECT_EQ(read_words(raw_extended('g', "19 comment=a1b2c3d\n") + raw_extended('x', "15 mtime=12.25\n12 path=p/q\n") +
                       raw_file("x", "y") + raw_file("z", "") + tar_end()),
            Words({"file p/q 1 y.", "file z 0 ."}));
  EXPECT_EQ(read_words(RawHeader{.name = "n", .prefix = "p"}.bytes() + tar_end()), Words({"file p/n 0 ."}));
  EXPECT_EQ(read_words(raw_file("a", "1") + raw_file("a", "22") + tar_end()),
            Words({"file a 1 1.", "file a 2  again22."}));
  EXPECT_EQ(read_words(RawHeader{.name = "b", .size = std::string("\x80\0\0\0\0\0\0\0\0\0\0\3", 12)}.bytes() + "abc" +
                       tar_padding(3) + tar_end() + std::string(9000, '\0')),
            Words({"file b 3 abc."}));
}

TEST(TarReader, RefusesPathsThatLeadOutside) {
  for (const char* path : {"/etc/passwd", "..", "../a", "a/../../b", "a/..", "//a"}) {
    EXPECT_NE(refusal(raw_file(path, "x") + tar_end()), "") << path;
    EXPECT_NE(refusal(raw_extended('L', std::string(path) + '\0') + raw_file("x", "") + tar_end()), "") << path;
  }
  EXPECT_NE(refusal(raw_file("/", "x") + tar_end()), "");
  EXPECT_NE(refusal(raw_folder("..") + tar_end()), "");
  EXPECT_NE(refusal(raw_extended('x', "13 path=../x\n") + raw_file("x", "") + tar_end()), "");
  EXPECT_NE(refusal(RawHeader{.name = "x", .prefix = "/abs"}.bytes() + tar_end()), "");
  EXPECT_NE(refusal(RawHeader{.name = "x", .prefix = ".."}.bytes() + tar_end()), "");
}

TEST(TarReader, RefusesOddNames) {
  EXPECT_NE(refusal(raw_file("a\nb", "") + tar_end()), "");
  EXPECT_NE(refusal(raw_file("a\x7f", "") + tar_end()), "");
  EXPECT_NE(refusal(raw_file("", "") + tar_end()), "");
  EXPECT_NE(refusal(raw_extended('x', std::string("11 path=a\0b\n", 12)) + raw_file("x", "") + tar_end()), "");
  EXPECT_NE(refusal(raw_extended('x', std::string("12 path=a\0b\n", 12)) + raw_file("x", "") + tar_end()), "");
  EXPECT_NE(refusal(raw_extended('L', std::string("a\0b\0", 4)) + raw_file("x", "") + tar_end()), "");
  EXPECT_NE(refusal(raw_extended('L', std::string(256, 'n') + '\0') + raw_file("x", "") + tar_end()), "");
  std::string deep;
  for (int i = 0; i < 2500; ++i) deep += "d/";
  EXPECT_NE(refusal(raw_extended('L', deep + "x" + '\0') + raw_file("x", "") + tar_end()), "");
  EXPECT_EQ(refusal(raw_file("na\xc3\xafve", "") + tar_end()), "");
}

TEST(TarReader, RefusesLinksThatLeadOutside) {
  for (const char* target : {"/etc", "..", "../x", "a/../..", "", "x/..", "a\nb", "./../x"}) {
    EXPECT_NE(refusal(raw_link("l", target) + tar_end()), "") << target;
  }
  EXPECT_NE(refusal(raw_link("d/l", "../../x") + tar_end()), "");
  EXPECT_EQ(refusal(raw_link("d/l", "../x") + tar_end()), "");
  EXPECT_EQ(refusal(raw_link("d/l", "..") + tar_end()), "");
  EXPECT_EQ(refusal(raw_link("l", ".") + tar_end()), "");
  EXPECT_EQ(refusal(raw_link("l", "not/there") + tar_end()), "");
  // With `l -> .`, `l/..` is the parent of the tree, although it looks like the tree itself.
  EXPECT_NE(refusal(raw_link("l", ".") + raw_link("m", "l/..") + tar_end()), "");
  EXPECT_NE(refusal(raw_link("m", "l/..") + raw_link("l", ".") + tar_end()), "");
}

TEST(TarReader, RefusesPathsThroughLinksAndFiles) {
  EXPECT_NE(refusal(raw_link("l", "d") + raw_file("l/x", "") + tar_end()), "");
  EXPECT_NE(refusal(raw_link("l", "d") + raw_folder("l/x/y") + tar_end()), "");
  EXPECT_NE(refusal(raw_link("l", "d") + raw_link("l/x", "y") + tar_end()), "");
  EXPECT_NE(refusal(raw_file("f", "") + raw_file("f/x", "") + tar_end()), "");
}

TEST(TarReader, RefusesPathsThatChangeTheirKind) {
  EXPECT_NE(refusal(raw_file("a", "") + raw_folder("a") + tar_end()), "");
  EXPECT_NE(refusal(raw_file("a", "") + raw_link("a", "b") + tar_end()), "");
  EXPECT_NE(refusal(raw_link("a", "b") + raw_file("a", "") + tar_end()), "");
  EXPECT_NE(refusal(raw_file("a/b", "") + raw_link("a", "b") + tar_end()), "");
  EXPECT_NE(refusal(raw_file("a/b", "") + raw_file("./a", "") + tar_end()), "");
  EXPECT_EQ(refusal(raw_folder("a") + raw_folder("a/") + tar_end()), "");
  EXPECT_EQ(refusal(raw_folder("/") + raw_file("a", "") + tar_end()), "") << "as petctl wrote the root";
}

TEST(TarReader, RefusesDevicesAndUnknownTypes) {
  for (const char type : {'3', '4', '6', 'S', 'M', 'V', 'D', 'N', 'q', '\xff'}) {
    EXPECT_NE(refusal(RawHeader{.name = "x", .type = type}.bytes() + tar_end()), "") << type;
  }
}

TEST(TarReader, RefusesHardLinksToAnythingButEarlierFiles) {
  EXPECT_EQ(refusal(raw_file("a", "1") + raw_link("b", "a", '1') + raw_link("c", "b", '1') + tar_end()), "");
  EXPECT_NE(refusal(raw_link("b", "a", '1') + raw_file("a", "1") + tar_end()), "");
  EXPECT_NE(refusal(raw_link("b", "/etc/passwd", '1') + tar_end()), "");
  EXPECT_NE(refusal(raw_link("b", "../a", '1') + tar_end()), "");
  EXPECT_NE(refusal(raw_folder("a") + raw_link("b", "a", '1') + tar_end()), "");
  EXPECT_NE(refusal(raw_link("a", "x") + raw_link("b", "a", '1') + tar_end()), "");
  EXPECT_NE(refusal(raw_file("a", "1") + raw_link("a", "a", '1') + tar_end()), "");
}

TEST(TarReader, HoldsItsLimits) {
  const TarLimits bytes{.bytes_max = 10};
  EXPECT_EQ(refusal(raw_file("a", "12345") + raw_file("b", "12345") + tar_end(), bytes), "");
  EXPECT_NE(refusal(raw_file("a", "12345") + raw_file("b", "123456") + tar_end(), bytes), "");
  EXPECT_NE(refusal(raw_file("a", "12345") + raw_file("a", "123456") + tar_end(), bytes), "");
  EXPECT_NE(refusal(raw_file("a", "12345") + raw_link("b", "a", '1') + raw_link("c", "a", '1') + tar_end(), bytes), "");
  EXPECT_NE(refusal(RawHeader{.name = "a", .size = "77777777777"}.bytes(), bytes), "");
  EXPECT_NE(refusal(RawHeader{.name = "a", .size = std::string(12, '\xff')}.bytes()), "");
  EXPECT_NE(refusal(RawHeader{.name = "a", .size = "\x80" + std::string(11, '\xff')}.bytes()), "");
  EXPECT_NE(refusal(raw_extended('x', "29 size=18446744073709551615\n") + raw_file("a", "")), "");
  EXPECT_NE(refusal(raw_extended('x', "30 size=184467440737095516150\n") + raw_file("a", "")), "");
  EXPECT_NE(refusal(raw_extended('x', "11 size=-1\n") + raw_file("a", "")), "");

  const TarLimits entries{.entries_max = 3};
  EXPECT_EQ(refusal(raw_file("a/b/c", "") + tar_end(), entries), "");
  EXPECT_NE(refusal(raw_file("a/b/c/d", "") + tar_end(), entries), "");
  EXPECT_NE(refusal(raw_file("a", "") + raw_file("a", "") + raw_file("a", "") + raw_file("a", "") + tar_end(), entries),
            "");
  EXPECT_NE(refusal(raw_file("long-name", "") + tar_end(), {.names_bytes_max = 5}), "");
  EXPECT_NE(refusal(raw_link("l", "long-name") + raw_file("a", "") + tar_end(), {.names_bytes_max = 5}), "");

  EXPECT_NE(refusal(RawHeader{.name = "x", .type = 'x', .size = "77777777777"}.bytes()), "");
  std::string headers;
  for (int i = 0; i < 100; ++i) headers += raw_extended('g', "9 a=bcde\n");
  EXPECT_NE(refusal(headers + tar_end(), {.entries_max = 1, .names_bytes_max = 10}), "");
  EXPECT_NE(refusal(tar_end() + std::string((1 << 20) + 1, '\0')), "");
}

TEST(TarReader, RefusesWhatIsDamaged) {
  const std::string good = raw_file("a", "12345") + tar_end();
  for (const size_t size : {size_t{0}, size_t{100}, size_t{512}, size_t{514}, size_t{1024}, good.size() - 512}) {
    EXPECT_NE(refusal(good.substr(0, size)), "") << size;
  }
  for (const size_t at : {0, 100, 124, 148, 156, 257}) {
    std::string bad = good;
    bad[at] ^= 1;
    EXPECT_NE(refusal(bad), "") << at;
  }
  EXPECT_NE(refusal(good + "x"), "");
  EXPECT_NE(refusal(std::string(512, '\0') + good), "");
  EXPECT_NE(refusal("this is a text and no archive, however long it gets" + std::string(1000, '.')), "");
  EXPECT_NE(refusal(RawHeader{.name = "d", .type = '5', .size = octal(5)}.bytes() + std::string(512, 'x') + tar_end()),
            "");
  for (const char* records : {"x", "5 a=b", "99 path=a\n", "9 path=ab\n", "7 path\n", "3 \n", "-1 path=a\n"}) {
    EXPECT_NE(refusal(raw_extended('x', records) + raw_file("a", "") + tar_end()), "") << records;
  }
  EXPECT_NE(refusal(raw_extended('x', "10 path=a\n") + tar_end()), "");  // of what?
  EXPECT_NE(refusal(raw_extended('g', "10 path=a\n") + raw_file("x", "") + tar_end()), "");
  EXPECT_NE(refusal(raw_extended('x', "22 GNU.sparse.major=1\n") + raw_file("x", "") + tar_end()), "");
}

TEST(TarReader, ErrorsHoldNoControlCharacters) {
  const std::string text = refusal(raw_file("a\x1b[31m", "") + tar_end());
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(text.find("a?[31m"), std::string::npos) << text;
}

}  // namespace
}  // namespace rubato::archive
