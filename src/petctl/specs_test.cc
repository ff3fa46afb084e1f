#include "petctl/specs.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "core/error.h"
#include "petctl/petctl_testing.h"

namespace rubato::petctl {
namespace {

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), with);
}

Error error_of(const std::string& text) {
  try {
    parse_specs(text, "specs.json");
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(ErrorCode::kFailed, "");
}

TEST(Specs, TheGuidesFileWorksAsItIs) {
  const Specs specs = parse_specs(sample_text("specs.json"), "specs.json");
  EXPECT_EQ(specs.rdzv.instance_type, "t3.micro");
  EXPECT_EQ(specs.rdzv.accelerator, Accelerator::kNone);
  EXPECT_EQ(specs.worker.accelerator, Accelerator::kGpu);
  EXPECT_EQ(specs.worker.instance_role, "reader");
  EXPECT_EQ(specs.worker.subnets, (std::vector<std::string>{"subnet-aaaaaaaa", "subnet-bbbbbbbb"}));
  EXPECT_EQ(specs.worker.docker_image, "torchelastic/aws:0.1.0-rc");
  EXPECT_EQ(specs.worker.efs_file_system_id, "fs-12345678");
  EXPECT_EQ(specs.worker.s3_bucket, "bucket");
  EXPECT_EQ(specs.worker.s3_prefix, "petctl/ann");
  EXPECT_EQ(specs.worker.ebs_volume_gb, kEbsVolumeGb);
  ASSERT_EQ(specs.notes.size(), 2u);
  EXPECT_EQ(specs.notes[0], "specs.json:14:27: user_data_template is not read: hosts boot with Rubato's own user data");
}

TEST(Specs, AnUnknownKeyIsPointedAtWithTheNearestOne) {
  const Error error = error_of(replaced(sample_text("specs.json"), "\"instance_type\": ", "\"instance_typ\": "));
  EXPECT_EQ(error.where, "specs.json:16:13");  // the section lacks it
  const Error second = error_of(replaced(sample_text("specs.json"), "\"key_pair\"", "\"keypair\""));
  EXPECT_EQ(second.where, "specs.json:6:5");
  EXPECT_NE(second.hint.find("key_pair"), std::string::npos) << second.hint;
}

TEST(Specs, APlaceholderOfTheSampleIsNotAValue) {
  const Error error = error_of(replaced(sample_text("specs.json"), "subnet-bbbbbbbb", "<YOUR SUBNET ...>"));
  EXPECT_EQ(error.where, "specs.json:9:7");
  EXPECT_EQ(error.message, "<YOUR SUBNET ...> is the sample's placeholder");
}

TEST(Specs, WrongValuesAndBrokenFilesSayWhere) {
  EXPECT_EQ(error_of(replaced(sample_text("specs.json"), "\"none\"", "\"tpu\"")).where, "specs.json:4:21");
  EXPECT_EQ(error_of("[1, 2]").where, "specs.json:1:1");
  EXPECT_EQ(error_of("{\"rdzv\": {").code, ErrorCode::kUsage);
  EXPECT_NE(error_of("{\"worker\": {}}").message.find("rdzv"), std::string::npos);
  EXPECT_NE(error_of(replaced(sample_text("specs.json"), "\"bucket\"", "\"a/b\"")).message.find("bucket"),
            std::string::npos);
}

}  // namespace
}  // namespace rubato::petctl
