#include "petctl/script.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace rubato::petctl {
namespace {

TEST(Script, EveryFormOfTheGuideIsRead) {
  Script script = read_script({"examples/imagenet/main.py"}, false, false);
  EXPECT_EQ(script.kind, Script::Kind::kFile);
  script = read_script({"examples/imagenet", "main.py"}, false, true);
  EXPECT_EQ(script.kind, Script::Kind::kFolder);
  EXPECT_EQ(script.entry, "main.py");
  script = read_script({"s3://my-bucket/my_script.py"}, false, false);
  EXPECT_EQ(script.kind, Script::Kind::kS3File);
  script = read_script({"s3://my-bucket/my_dir.tar.gz", "my_script.py"}, false, false);
  EXPECT_EQ(script.kind, Script::Kind::kS3Tar);
  EXPECT_EQ(script.entry, "my_script.py");
  script = read_script({"/path/in/container/dir", "my_script.py"}, true, false);
  EXPECT_EQ(script.kind, Script::Kind::kOnHost);
  EXPECT_EQ(script.source, "/path/in/container/dir/my_script.py");
  script = read_script({"docker:///path/in/container/my_script.py"}, false, false);
  EXPECT_EQ(script.kind, Script::Kind::kOnHost);
  EXPECT_EQ(script.source, "/path/in/container/my_script.py");
}

TEST(Script, WhatCannotBeMeantIsRefused) {
  EXPECT_THROW(read_script({}, false, false), Error);
  EXPECT_THROW(read_script({"folder"}, false, true), Error);
  EXPECT_THROW(read_script({"main.py", "--lr"}, false, false), Error);
  EXPECT_THROW(read_script({"folder", "../main.py"}, false, true), Error);
  EXPECT_THROW(read_script({"folder", "/main.py"}, false, true), Error);
  EXPECT_THROW(read_script({"s3://bucket/dir.tar.gz"}, false, false), Error);
  EXPECT_THROW(read_script({"s3://bucket/main.py", "main.py"}, false, false), Error);
  EXPECT_THROW(read_script({"dir", "main.py"}, true, false), Error);
  EXPECT_THROW(read_script({"a", "b", "c"}, false, true), Error);
}

TEST(Script, TrainLoopScriptsAreRefused) {
  EXPECT_EQ(refusal_of("import torchelastic.train_loop as elastic_train_loop\n"), "it imports torchelastic.train_loop");
  EXPECT_EQ(refusal_of("from torchelastic.p2p.coordinator_p2p import CoordinatorP2P\n"), "it imports torchelastic.p2p");
  EXPECT_NE(refusal_of("import torchelastic\ntorchelastic.train_loop(a)\n"), "");
  EXPECT_EQ(refusal_of("from torchelastic.utils.data import ElasticDistributedSampler\n"), "");
  EXPECT_EQ(refusal_of("import torch\ndef train_loop(): pass\n"), "");
}

}  // namespace
}  // namespace rubato::petctl
