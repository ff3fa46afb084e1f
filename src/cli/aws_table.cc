// The tables of `rubato aws …` and `rubato cp`.
#include "cli/aws_command.h"
#include "cli/common_flags.h"

namespace rubato::cli {
namespace {

Flag profile_flag() {
  return {.name = "profile",
          .kind = FlagKind::kValue,
          .value = "NAME",
          .help = "a profile of ~/.aws, before credentials in variables",
          .group = "Account"};
}

Flag region_flag() {
  return {.name = "region",
          .kind = FlagKind::kValue,
          .value = "NAME",
          .help = "instead of AWS_REGION and the profile's",
          .group = "Account"};
}

}  // namespace

const Command& aws_whoami_table() {
  static const Command table{
      .name = "aws whoami",
      .summary = "show which AWS credentials and region are used, and where they come from",
      .usage = "rubato aws whoami [--profile NAME] [--region NAME] [--json]",
      .about =
          "Looks where AWS's own tools look, in their order: variables, the profile (role, web identity,\n"
          "SSO, keys), the container, the instance. Asks AWS once who that is. No secret is printed.",
      .flags = {json_flag(), profile_flag(), region_flag()},
      .examples = {{"who am I?", "rubato aws whoami"}, {"another profile", "rubato aws whoami --profile training"}}};
  return table;
}

const Command& aws_policy_table() {
  static const Command table{
      .name = "aws policy",
      .summary = "print the IAM policy that Rubato needs, and no more",
      .usage = "rubato aws policy [--for user|head|workers|jobs] [--cluster NAME] [--bucket NAME ...]",
      .about =
          "A JSON document for the IAM console or `aws iam put-user-policy`. Calls that change machines are\n"
          "allowed only for what carries the tag rubato-cluster. It needs no account and no network.",
      .flags = {{.name = "for",
                 .kind = FlagKind::kValue,
                 .value = "WHOM",
                 .help = "user: who types rubato up; head or workers: their roles; jobs: who types petctl",
                 .default_text = "user",
                 .choices = "user head workers jobs"},
                {.name = "cluster",
                 .kind = FlagKind::kValue,
                 .value = "NAME",
                 .help = "only what carries this cluster's tag",
                 .default_text = "any cluster"},
                {.name = "bucket", .kind = FlagKind::kRepeat, .value = "NAME", .help = "a bucket that jobs use"},
                {.name = "region",
                 .kind = FlagKind::kValue,
                 .value = "NAME",
                 .help = "for China and GovCloud: ARNs differ there"}},
      .examples = {{"for yourself", "rubato aws policy --bucket my-data > policy.json"},
                   {"for rubato petctl", "rubato aws policy --for jobs --bucket my-data"},
                   {"for the workers of a cluster", "rubato aws policy --for workers --bucket my-data"}}};
  return table;
}

const Command& cp_table() {
  static const Command table{
      .name = "cp",
      .summary = "copy files to, from and between S3 and Cloud Storage: in parallel, checked, continued",
      .usage = "rubato cp [-r] SRC DST        (one or both are s3://BUCKET/KEY or gs://BUCKET/KEY)",
      .about =
          "Several parts at a time, each with its hash; a download gets its name when it is whole and right.\n"
          "The same command again goes on where it ended. Memory stays below 100 MB whatever the size.\n"
          "A DST that ends in / is a folder. Between buckets of one cloud, the cloud copies; from one cloud to\n"
          "the other, objects come by this machine's disk. AWS_ENDPOINT_URL_S3 and STORAGE_EMULATOR_HOST name\n"
          "other servers.",
      .positional = {.name = "SRC DST", .help = "a path, s3://BUCKET/KEY or gs://BUCKET/KEY", .at_most = 2},
      .flags = {{.name = "recursive", .short_name = 'r', .help = "all that is in the folder SRC"},
                {.name = "parallel",
                 .kind = FlagKind::kValue,
                 .value = "N",
                 .help = "parts at a time, at most 8",
                 .default_text = "4"},
                json_flag(),
                profile_flag(),
                region_flag()},
      .examples = {{"upload", "rubato cp model.pt s3://my-data/models/"},
                   {"download", "rubato cp s3://my-data/models/model.pt ."},
                   {"a folder", "rubato cp -r s3://my-data/imagenet/ /data/imagenet/"}}};
  return table;
}

}  // namespace rubato::cli
