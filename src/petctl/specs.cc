#include "petctl/specs.h"

#include <fmt/format.h>

#include "aws/s3.h"
#include "core/text.h"
#include "core/yaml.h"

namespace rubato::petctl {
namespace {

// The sample's "<YOUR SUBNET #1>".
std::string filled_in(const Yaml& node) {
  std::string text = node.as_string();
  if (text.starts_with('<') && text.ends_with('>')) {
    node.fail(fmt::format("{} is the sample's placeholder", text), "write your own value, or take the line out");
  }
  return text;
}

std::string text_of(StrictMapping& fields, std::string_view key) {
  const std::optional<Yaml> found = fields.find(key);
  return found ? filled_in(*found) : "";
}

std::string required_text(StrictMapping& fields, std::string_view key) {
  const Yaml node = fields.require(key);
  std::string text = filled_in(node);
  if (text.empty()) node.fail(fmt::format("{} is empty", key));
  return text;
}

std::vector<std::string> list_of(StrictMapping& fields, std::string_view key) {
  const Yaml node = fields.require(key);
  std::vector<std::string> out;
  for (const Yaml& one : node.items()) out.push_back(filled_in(one));
  if (out.empty()) node.fail(fmt::format("{} is empty", key), "name at least one");
  return out;
}

Accelerator accelerator_of(StrictMapping& fields) {
  const std::optional<Yaml> found = fields.find("accelerator");
  if (!found) return Accelerator::kNone;
  const std::string text = to_lower(found->as_string());
  if (text == "gpu") return Accelerator::kGpu;
  if (text != "none") found->fail(fmt::format("'{}' is no accelerator", text), "write none or gpu");
  return Accelerator::kNone;
}

void read_host(StrictMapping& fields, HostSpecs& out, std::vector<std::string>& notes) {
  out.where = fields.node().where();
  out.instance_type = required_text(fields, "instance_type");
  out.accelerator = accelerator_of(fields);
  out.instance_role = required_text(fields, "instance_role");
  out.key_pair = text_of(fields, "key_pair");
  out.image_id = text_of(fields, "image_id");
  out.subnets = list_of(fields, "subnets");
  out.security_groups = list_of(fields, "security_groups");
  if (const auto size = fields.find("ebs_volume_gb")) out.ebs_volume_gb = static_cast<int>(size->as_int(8, 16384));
  if (const auto price = fields.find("max_spot_price")) {
    if (price->quoted()) price->fail("the price is a number", "write it without quotes: 0.5");
    if (price->as_double() <= 0) price->fail("a price is above 0");
    out.max_spot_price = price->as_string();
  }
  if (const auto mine = fields.find("user_data_template")) {
    notes.push_back(
        fmt::format("{}: user_data_template is not read: hosts boot with Rubato's own user data", mine->where()));
  }
}

}  // namespace

std::string_view to_string(Accelerator accelerator) {
  switch (accelerator) {
    case Accelerator::kNone:
      return "none";
    case Accelerator::kGpu:
      return "gpu";
  }
  return "";
}

Specs parse_specs(std::string_view text, const std::string& file) {
  // JSON is YAML, and our YAML knows where each key stands.
  const Yaml root = Yaml::parse(text, file);
  if (!root.is_mapping()) {
    root.fail("this is no specs file", "it is a JSON object with the keys \"rdzv\" and \"worker\"");
  }
  Specs out;
  StrictMapping sections(root, "the specs file");
  StrictMapping rdzv(sections.require("rdzv"), "rdzv");
  read_host(rdzv, out.rdzv, out.notes);
  rdzv.finish();
  StrictMapping worker(sections.require("worker"), "worker");
  read_host(worker, out.worker, out.notes);
  out.worker.docker_image = text_of(worker, "docker_image");
  out.worker.efs_file_system_id = text_of(worker, "efs_file_system_id");
  out.worker.s3_bucket = required_text(worker, "s3_bucket");
  if (!aws::is_bucket_name(out.worker.s3_bucket)) {
    worker.require("s3_bucket")
        .fail(fmt::format("'{}' cannot be the name of a bucket", out.worker.s3_bucket), aws::kBucketRule);
  }
  out.worker.s3_prefix = text_of(worker, "s3_prefix");
  while (out.worker.s3_prefix.starts_with('/')) out.worker.s3_prefix.erase(0, 1);
  while (out.worker.s3_prefix.ends_with('/')) out.worker.s3_prefix.pop_back();
  worker.finish();
  sections.finish();
  return out;
}

}  // namespace rubato::petctl
