// What git, GNU tar and Python's tarfile think of the same trees, patterns and archives.
#include <cstdlib>
#include <set>

#include "archive/archive_testing.h"
#include "archive/codec.h"
#include "archive/package.h"
#include "archive/tree.h"
#include "core/random.h"
#include "core/text.h"

namespace rubato::archive {
namespace {

class Compat : public DiskTest {
 protected:
  void shell(const std::string& command) {
    const std::string line = "cd " + shell_quote(root_) + " && umask 022 && (" + command + ") >log 2>&1";
    ASSERT_EQ(std::system(line.c_str()), 0) << command << "\n" << files_.read(at("log")).value_or("");
  }

  // The tar inside of a package.
  std::string tar_of(const std::string& package) {
    std::string tar;
    const auto decoder = make_zstd_decoder(package);
    decoder->decode(*files_.read(package), [&tar](std::string_view piece) { tar += piece; });
    decoder->finish();
    return tar;
  }

  void make_sample() {
    file("in/a.py", "print(1)\n");
    file("in/run.sh", "#!/bin/sh\n", true);
    file("in/empty");
    file("in/block", std::string(512, 'b'));
    file("in/large", std::string(300'000, 'l') + "end");
    file("in/na\xc3\xafve.txt", "unicode");
    file("in/d/" + std::string(98, 'n'), "100 bytes");
    file("in/d/" + std::string(99, 'n'), "101 bytes");
    file("in/" + std::string(80, 'p') + "/" + std::string(90, 'q') + "/x", "in the prefix field");
    file("in/" + std::string(200, 'r') + "/" + std::string(150, 's'), "in neither");
    files_.make_folders(at("in/nothing/here"));
    link("in/d/up", "../a.py");
    link("in/far", std::string(200, 'r') + "/" + std::string(150, 's'));
    link("in/lost", "not/there");
  }
};

// ---- git ----

class Patterns {
 public:
  explicit Patterns(uint64_t seed) : random_(seed) {}

  std::string name() { return pick({"a", "b", "ab", "abc", "a.c", ".b", "c d", "[a]", "!a", "#b", "a*", "B", "a-c"}); }

  std::string ignore_file() {
    std::string text = chance(5) ? "\xef\xbb\xbf" : "";
    for (uint64_t lines = 1 + random_.below(4); lines > 0; --lines) text += line() + (chance(5) ? "\r\n" : "\n");
    return text;
  }

  uint64_t below(uint64_t n) { return random_.below(n); }
  bool chance(uint64_t percent) { return random_.below(100) < percent; }

 private:
  std::string pick(const std::vector<std::string>& from) { return from[random_.below(from.size())]; }

  std::string part() {
    if (chance(15)) return "**";
    if (chance(40)) return name();
    std::string out;
    for (uint64_t pieces = 1 + random_.below(3); pieces > 0; --pieces) {
      const std::string piece =
          pick({"a",           "b",    "c",    ".",     "*",    "*",    "*",           "?",
                "[ab]",        "[!a]", "[^b]", "[a-c]", "[]a]", "[a-]", "[[:alpha:]]", "[[:punct:]b]",
                "[[:upper:]]", "\\a",  "\\*",  "[\\]]", "[",    "\\[",  " ",           "-",
                "[[:no:]]",    "[!"});
      // git 2.39 compares unrelated pointers for ** after other letters; its manual says that it is *.
      if (piece == "*" && out.ends_with('*')) continue;
      out += piece;
    }
    return out;
  }

  std::string line() {
    if (chance(4)) return pick({"", "#a", "/", "!", "\\", "//", "  ", "!!a", "\\#b", "\\!a"});
    std::string out = chance(30) ? "!" : "";
    if (chance(25)) out += "/";
    out += part();
    for (uint64_t parts = random_.below(3); parts > 0; --parts) out += "/" + part();
    if (chance(20)) out += "/";
    if (chance(10)) out += pick({" ", "  ", "\\ ", "\\"});
    return out;
  }

  Random random_;
};

TEST_F(Compat, IgnoresWhatGitIgnores) {
  constexpr int kCases = 600;
  const char* given = std::getenv("RUBATO_SEED");
  const uint64_t seed = given ? std::strtoull(given, nullptr, 10) : 20240611;
  SCOPED_TRACE("replay with RUBATO_SEED=" + std::to_string(seed));
  Patterns patterns(seed);
  shell("git init -q .");
  std::map<std::string, std::string> rules;  // for a failure's words
  for (int number = 0; number < kCases; ++number) {
    const std::string top = "case" + std::to_string(number);
    std::set<std::string> folders = {top}, taken = {top};
    for (int i = 0; i < 14; ++i) {
      std::string folder = top;
      for (uint64_t depth = patterns.below(4); depth > 0; --depth) {
        const std::string deeper = folder + "/" + patterns.name();
        if (taken.contains(deeper) && !folders.contains(deeper)) break;
        folder = deeper;
        folders.insert(folder);
        taken.insert(folder);
      }
      const std::string path = folder + "/" + patterns.name();
      if (taken.insert(path).second) file(path);
    }
    for (const std::string& folder : folders) {
      if (folder != top && !patterns.chance(10)) continue;
      const std::string text = patterns.ignore_file();
      file(folder + "/.gitignore", text);
      rules[top] += folder + "/.gitignore:\n" + text;
    }
  }
  ASSERT_EQ(std::system(("cd " + shell_quote(root_) +
                         " && GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 git ls-files -z --others "
                         "--exclude-standard 'case*' >.git/kept")
                            .c_str()),
            0);
  std::set<std::string> by_git, by_us;
  const std::string kept = *files_.read(at(".git/kept"));
  for (const std::string_view path : split(kept, '\0')) {
    if (!path.empty()) by_git.emplace(path);
  }
  TreeOptions options;
  options.ignore_files = true;
  TreeWalk walk(files_, root_, options);
  while (const std::optional<TarEntry> entry = walk.next()) {
    if (entry->kind == TarEntry::Kind::kFile && entry->path.starts_with("case")) by_us.insert(entry->path);
  }
  EXPECT_GT(by_git.size(), 1000u);  // and many more are ignored, or the test says nothing
  std::set<std::string> all;
  TreeWalk everything(files_, root_, TreeOptions());
  while (const std::optional<TarEntry> entry = everything.next()) {
    if (entry->kind == TarEntry::Kind::kFile && entry->path.starts_with("case")) all.insert(entry->path);
  }
  EXPECT_GT(all.size(), by_git.size() + 1000u);
  for (const std::string& path : all) {
    ASSERT_EQ(by_us.contains(path), by_git.contains(path))
        << path << " is " << (by_git.contains(path) ? "kept" : "ignored") << " by git\n"
        << rules[path.substr(0, path.find('/'))];
  }
}

// ---- tar and Python ----

TEST_F(Compat, OthersReadOurTar) {
  make_sample();
  pack(files_, at("in"), at("p.tar.zst"));
  files_.write_atomically(at("p.tar"), tar_of(at("p.tar.zst")));
  shell("mkdir gnu && tar -xf p.tar -C gnu");
  EXPECT_EQ(tree("gnu"), tree("in"));
  shell("python3 -c 'import tarfile; tarfile.open(\"p.tar\", errorlevel=2).extractall(\"python\")'");
  EXPECT_EQ(tree("python"), tree("in"));
  shell("tar -tvf p.tar");
  const std::string listing = *files_.read(at("log"));
  for (const std::string_view line : split(listing, '\n')) {
    if (line.empty()) continue;
    EXPECT_NE(line.find(" 0/0 "), std::string_view::npos) << line;
    EXPECT_NE(line.find(" 1970-01-01 "), std::string_view::npos) << line;
  }
}

TEST_F(Compat, WeReadTheirs) {
  make_sample();
  const Package ours = pack(files_, at("in"), at("p.tar.zst"));
  file("make.py",
       "import sys, tarfile\n"
       "form = getattr(tarfile, sys.argv[1])\n"
       "with tarfile.open('p.tar.gz', 'w:gz', format=form) as tar: tar.add('in', '.')\n");
  for (const char* command :
       {"tar --format=gnu -czf p.tar.gz -C in .", "tar --format=pax -czf p.tar.gz -C in .",
        "tar --format=posix -cf p.tar.gz -C in . && gzip -f p.tar.gz && mv p.tar.gz.gz p.tar.gz",
        "cd in && tar -cf ../p.tar.gz * && cd ..", "tar --format=pax --xattrs -b 512 -cf p.tar.gz -C in .",
        "python3 make.py GNU_FORMAT", "python3 make.py PAX_FORMAT"}) {
    shell(command);
    EXPECT_EQ(repack(files_, at("p.tar.gz"), at("p2.tar.zst")).hash, ours.hash) << command;
  }
  files_.remove_tree(at("in/" + std::string(200, 'r')));  // too long for these two
  files_.remove_tree(at("in/far"));
  const Package shorter = pack(files_, at("in"), at("p.tar.zst"));
  for (const char* command : {"tar --format=ustar -czf p.tar.gz -C in .", "python3 make.py USTAR_FORMAT"}) {
    shell(command);
    EXPECT_EQ(repack(files_, at("p.tar.gz"), at("p2.tar.zst")).hash, shorter.hash) << command;
  }
  shell("rm -r in/d in/ppp* && tar --format=v7 -czf p.tar.gz -C in .");
  EXPECT_EQ(repack(files_, at("p.tar.gz"), at("p2.tar.zst")).hash, pack(files_, at("in"), at("p.tar.zst")).hash);
}

TEST_F(Compat, WeReadHardLinksAndGitArchives) {
  file("in/a", "same");
  shell("ln in/a in/b && tar -czf p.tar.gz -C in .");
  const Package package = repack(files_, at("p.tar.gz"), at("p.tar.zst"));
  unpack(files_, at("p.tar.zst"), package.hash, at("out"));
  EXPECT_EQ(tree("out"), tree("in"));
  shell(
      "git init -q in && cd in && git add . && git -c user.name=a -c user.email=a@b commit -qm a && "
      "git archive -o ../p.tar.gz HEAD && cd ..");
  EXPECT_EQ(repack(files_, at("p.tar.gz"), at("p.tar.zst")).hash, package.hash);
}

}  // namespace
}  // namespace rubato::archive
