#include "archive/merged_tree.h"

#include "archive/archive_testing.h"

namespace rubato::archive {
namespace {

using Tree = std::map<std::string, std::string>;

class MergedTreeTest : public DiskTest {
 protected:
  // What a person gets of these folders of the test, in this order.
  Tree fetched(const std::vector<std::string>& names) {
    std::vector<Layer> layers;
    for (const std::string& name : names) layers.push_back({at(name), name});
    MergedTree tree = merge(files_, layers);
    conflicts = tree.conflicts;
    MergedTar tar(files_, std::move(tree));
    files_.remove_tree(at("out"));
    FolderUntar untar(files_, at("out"));
    while (const std::optional<std::string> chunk = tar.next()) {
      EXPECT_FALSE(chunk->empty());
      untar.feed(*chunk);
    }
    EXPECT_EQ(tar.next(), std::nullopt);
    untar.finish();
    return this->tree("out");
  }
  uint64_t conflicts = 0;
};

TEST_F(MergedTreeTest, FilesOfAllComeTogether) {
  file("a/model.pt", std::string(700'000, 'm'));
  file("a/logs/rank0.txt", "zero");
  file("b/logs/rank1.txt", "one");
  file("b/run.sh", "#!", true);
  link("b/last", "logs/rank1.txt");
  files_.make_folders(at("b/checkpoint"));
  EXPECT_EQ(fetched({"a", "b", "not-there"}), (Tree{{"checkpoint", "folder"},
                                                    {"last", "link:logs/rank1.txt"},
                                                    {"logs", "folder"},
                                                    {"logs/rank0.txt", "file:zero"},
                                                    {"logs/rank1.txt", "file:one"},
                                                    {"model.pt", "file:" + std::string(700'000, 'm')},
                                                    {"run.sh", "run:#!"}}));
  EXPECT_EQ(conflicts, 0u);
}

TEST_F(MergedTreeTest, TheFirstHasThePathAndTheOthersAreBesideIt) {
  file("a/result", "of rank 0");
  file("a/same", "equal");
  file("b/result", "of rank 1");
  file("b/same", "equal");
  file("c/result", "of rank 2");
  file("c/sub/x", "x");
  EXPECT_EQ(fetched({"a", "b", "c"}), (Tree{{"result", "file:of rank 0"},
                                            {"rubato-others", "folder"},
                                            {"rubato-others/b", "folder"},
                                            {"rubato-others/b/result", "file:of rank 1"},
                                            {"rubato-others/c", "folder"},
                                            {"rubato-others/c/result", "file:of rank 2"},
                                            {"same", "file:equal"},
                                            {"sub", "folder"},
                                            {"sub/x", "file:x"}}));
  EXPECT_EQ(conflicts, 2u);
}

TEST_F(MergedTreeTest, AFileAndAFolderOfOneNameAreBothThere) {
  file("a/data", "a file");
  file("b/data/deep/x", "in a folder");
  file("b/rubato-others", "taken");
  const Tree tree = fetched({"a", "b"});
  EXPECT_EQ(tree.at("data"), "file:a file");
  EXPECT_EQ(tree.at("rubato-others"), "file:taken");
  EXPECT_EQ(tree.at("rubato-others-2/b/data/deep/x"), "file:in a folder");
  const Tree turned = fetched({"b", "a"});
  EXPECT_EQ(turned.at("data/deep/x"), "file:in a folder");
  EXPECT_EQ(turned.at("rubato-others-2/a/data"), "file:a file");
}

TEST_F(MergedTreeTest, LinksThatLeadOutStayOut) {
  file("a/x", "x");
  link("a/out", "../../etc/passwd");
  files_.make_folders(at("b"));
  link("b/x", "/etc/passwd");
  EXPECT_EQ(fetched({"a", "b"}), (Tree{{"x", "file:x"}}));
  EXPECT_EQ(fetched({}), Tree{});
}

}  // namespace
}  // namespace rubato::archive
