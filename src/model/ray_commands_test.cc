#include "model/ray_commands.h"

#include <gtest/gtest.h>

namespace rubato {
namespace {

using Commands = std::vector<std::string>;

TEST(RayCommands, RaysOwnAreReplaced) {
  const Commands commands{"ray stop", "ulimit -n 65536; ray start --head --port=6379 --dashboard-host=0.0.0.0"};
  const StartCommands split = split_start_commands(commands);
  EXPECT_EQ(split.replaced, commands);
  EXPECT_EQ(split.before, Commands());
  EXPECT_EQ(split.after, Commands());
}

TEST(RayCommands, ManySpellingsAreKnown) {
  for (const char* command :
       {"ray start --address=$RAY_HEAD_IP:6379", "/opt/conda/bin/ray start --head", "RAY_LOG=1 ray start --head",
        "sudo ray stop --force", "ray stop || true", "ulimit -c unlimited && ray start --head",
        "uv run ray start --head", "conda run -n env ray start --head", "ray start --head > /tmp/log 2>&1",
        "ray stop; ray start --head", "ray start --head || (echo failed && exit 1)", "ray start --block | tee log"}) {
    const StartCommands split = split_start_commands({command});
    EXPECT_EQ(split.replaced, Commands{command});
    EXPECT_EQ(split.before, Commands()) << command;
    EXPECT_EQ(split.after, Commands()) << command;
  }
}

TEST(RayCommands, WhatPreparesTheStartStays) {
  const StartCommands split = split_start_commands(
      {"source activate pytorch && ray stop", "ulimit -n 65536; source activate pytorch && ray start --head"});
  EXPECT_EQ(split.before, Commands{"source activate pytorch"});
  const StartCommands two = split_start_commands({"export A=1; cd /x && ray stop; ray start --head"});
  EXPECT_EQ(two.before, Commands{"export A=1; cd /x"});
}

TEST(RayCommands, TheUsersOwnStayInOrderAroundTheStart) {
  const StartCommands split = split_start_commands(
      {"echo one", "ray stop", "mount /data; ray start --head && python serve.py", "echo 'ray start' >> log"});
  EXPECT_EQ(split.before, (Commands{"echo one", "mount /data"}));
  EXPECT_EQ(split.after, (Commands{"python serve.py", "echo 'ray start' >> log"}));
  EXPECT_EQ(split.replaced.size(), 2u);
  EXPECT_EQ(split_start_commands({"ray stop || reboot; mount /data"}).before, Commands{"mount /data"});
}

TEST(RayCommands, CommandsWithoutRayAreNotTouched) {
  const Commands commands{"tmux new -d 'ray start'  ;  x", "ray-exporter start", "xray start", "ray status",
                          "ulimit -n 1"};
  const StartCommands split = split_start_commands(commands);
  EXPECT_EQ(split.before, commands);
  EXPECT_EQ(split.replaced, Commands());
}

}  // namespace
}  // namespace rubato
