#include "daemon/training_library.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "os/files.h"

namespace rubato::cli {
namespace {

class TrainingLibrary : public testing::Test {
 protected:
  TrainingLibrary() : folder(files.make_temporary_folder("rubato-library-")) {}
  ~TrainingLibrary() override { std::filesystem::remove_all(folder); }
  agent::Environment add(const std::string& below) {
    agent::Environment workers{{"PYTHONPATH", "/mine"}};
    add_training_library(files, below, "/no/such/python", workers);
    return workers;
  }
  os::RealFiles files;
  const std::string folder;
};

TEST_F(TrainingLibrary, IsUnpackedAndOnThePathOfWorkers) {
  const agent::Environment workers = add(folder);
  const std::string library = folder + "/python-" + embedded::kLibraryHash;
  EXPECT_EQ(workers.at("PYTHONPATH"), "/mine:" + library + ":" + library + "/adaptdl");
  EXPECT_EQ(workers.at("RUBATO_LIBRARY"), library);
  EXPECT_TRUE(files.exists(library + "/rubato"));
  EXPECT_EQ(add(folder), workers);
}

TEST_F(TrainingLibrary, SaysWhyItCannotBeUnpacked) {
  files.open_append(folder + "/file")->append("no folder");
  EXPECT_THROW(add(folder + "/file/node"), Error);
}

TEST_F(TrainingLibrary, ItsAdaptdlComesFirstWhereThatIsWanted) {
  agent::Environment workers = add(folder);
  const std::string before = workers.at("PYTHONPATH");
  agent::prefer_our_adaptdl(workers);
  EXPECT_EQ(workers.at("PYTHONPATH"), workers.at("RUBATO_LIBRARY") + "/adaptdl:" + before);
  agent::Environment none;
  agent::prefer_our_adaptdl(none);
  EXPECT_TRUE(none.empty());
}

TEST(TrainingLibraryCache, IsTheUsers) {
  EXPECT_EQ(library_cache({{"HOME", "/h"}}), "/h/.cache/rubato");
  EXPECT_EQ(library_cache({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/c"}}), "/c/rubato");
  EXPECT_EQ(library_cache({{"HOME", "/h"}, {"XDG_CACHE_HOME", "relative"}}), "/h/.cache/rubato");
  EXPECT_EQ(library_cache({}), "");
}

}  // namespace
}  // namespace rubato::cli
