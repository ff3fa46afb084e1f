#include "sim/files.h"

#include "sim/simulation.h"
#include "world/files_testing.h"

namespace rubato {
namespace {

class SimulatedDisk : public ::testing::Test {
 protected:
  SimulatedDisk() : sim_(1, 1), files_(sim_.machine(1).disk(), life_) { files_.make_folders(root()); }
  Files& files() { return files_; }
  std::string root() const { return "/home/someone"; }

  sim::Simulation sim_;
  sim::ProgramLife life_;
  sim::ProgramFiles files_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(SimFiles, FilesContract, SimulatedDisk);

TEST_F(SimulatedDisk, AKilledProgramChangesNothing) {
  files_.write_atomically("/f", "1");
  life_.running = false;
  files_.rename("/f", "/g");
  files_.make_link("f", "/l");
  files_.set_mode("/f", 0755);
  EXPECT_TRUE(files_.exists("/f"));
  EXPECT_FALSE(files_.exists("/g"));
  EXPECT_FALSE(files_.exists("/l"));
  EXPECT_FALSE(files_.open_read("/f")->executable());
}

TEST_F(SimulatedDisk, AFullOneRefusesLinks) {
  sim_.machine(1).disk().set_free_bytes(0);
  EXPECT_THROW(files_.make_link("f", "/l"), Error);
}

}  // namespace
}  // namespace rubato
