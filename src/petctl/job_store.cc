#include "petctl/job_store.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/sha256.h"
#include "core/text.h"

namespace rubato::petctl {
namespace {

using nlohmann::json;

constexpr size_t kObjectsMax = 20'000;  // of one job
constexpr int kReadTries = 5;
constexpr uint64_t kDocumentMax = 64 << 10;  // bytes of one of our documents

constexpr std::pair<HostReport::State, std::string_view> kStates[] = {{HostReport::State::kStarting, "starting"},
                                                                      {HostReport::State::kRunning, "running"},
                                                                      {HostReport::State::kSucceeded, "succeeded"},
                                                                      {HostReport::State::kFailed, "failed"}};

json parsed(const std::string& text) {
  json document = json::parse(text, nullptr, false);
  return document.is_object() ? document : json::object();
}

std::string field(const json& document, const char* key) {
  const auto found = document.find(key);
  return found != document.end() && found->is_string() ? found->get<std::string>() : "";
}

int64_t number(const json& document, const char* key) {
  const auto found = document.find(key);
  return found != document.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

HostReport report_from(const json& document) {
  HostReport out;
  out.instance = field(document, "instance");
  out.address = field(document, "address");
  out.role = field(document, "role");
  out.note = field(document, "note");
  out.since = field(document, "since");
  out.exit_code = static_cast<int>(number(document, "exit_code"));
  const std::string state = field(document, "state");
  for (const auto& [each, name] : kStates) {
    if (name == state) out.state = each;
  }
  return out;
}

}  // namespace

std::string_view to_string(HostReport::State state) {
  for (const auto& [each, name] : kStates) {
    if (each == state) return name;
  }
  return "";
}

Task<std::optional<std::string>> read_object(aws::Client& client, aws::S3Address address, uint64_t size_max) {
  for (int left = kReadTries; true; --left) {
    const std::optional<aws::S3Object> found = co_await aws::head_object(client, address);
    if (!found) co_return std::nullopt;
    if (found->size > size_max) {
      throw Error(ErrorCode::kFailed, fmt::format("it has {} bytes, and at most {} are read", found->size, size_max),
                  to_string(address));
    }
    if (found->size == 0) co_return std::string();
    try {
      std::string bytes = co_await aws::get_range(client, address, 0, found->size, found->etag);
      co_return bytes;
    } catch (const Error& error) {
      if (error.code != ErrorCode::kConflict || left <= 1) throw;  // it was replaced in between
    }
  }
}

Task<void> write_object(aws::Client& client, aws::S3Address address, std::string bytes) {
  aws::S3Bytes body;
  body.sha256 = sha256_hex(bytes);
  body.read = [bytes]() { return bytes; };
  co_await aws::put_object(client, std::move(address), std::move(body));
}

JobStore::JobStore(aws::Client& client, const std::string& place) : client_(client) {
  const aws::S3Address address = aws::parse_s3_address(place);
  bucket_ = address.bucket;
  prefix_ = address.key;
}

std::string JobStore::place() const { return fmt::format("s3://{}/{}", bucket_, prefix_); }

aws::S3Address JobStore::address(const std::string& name) const {
  return {bucket_, fmt::format("{}/rubato/{}", prefix_, name)};
}

Task<std::optional<std::string>> JobStore::read(std::string name) {
  const aws::S3Address from = address(name);
  co_return co_await read_object(client_, from, kDocumentMax);
}

Task<void> JobStore::write(std::string name, std::string bytes) {
  const aws::S3Address to = address(name);
  co_await write_object(client_, to, std::move(bytes));
}

Task<std::string> JobStore::ensure_key(std::string fresh) {
  std::optional<std::string> there = co_await read("key");
  if (there && !there->empty()) co_return *there;
  co_await write("key", fresh);
  co_return fresh;
}

Task<std::optional<RdzvRecord>> JobStore::rdzv() {
  const std::optional<std::string> text = co_await read("rdzv.json");
  if (!text) co_return std::nullopt;
  const json document = parsed(*text);
  RdzvRecord out;
  out.instance = field(document, "instance");
  out.endpoint = field(document, "endpoint");
  out.epoch = static_cast<uint64_t>(number(document, "epoch"));
  if (out.endpoint.empty()) co_return std::nullopt;
  co_return out;
}

Task<void> JobStore::write_rdzv(RdzvRecord record) {
  const json document = {{"instance", record.instance}, {"endpoint", record.endpoint}, {"epoch", record.epoch}};
  co_await write("rdzv.json", document.dump() + "\n");
}

Task<std::vector<HostReport>> JobStore::reports(KnownReports& known) {
  const aws::S3Address below = address("status/");
  const std::vector<aws::S3Object> found = co_await aws::list_objects(client_, below, kObjectsMax);
  std::vector<HostReport> out;
  for (const aws::S3Object& one : found) {
    const auto before = known.find(one.key);
    if (before != known.end() && !one.etag.empty() && before->second.etag == one.etag) {
      out.push_back(before->second.report);
      continue;
    }
    const aws::S3Address where{bucket_, one.key};
    const std::optional<std::string> text = co_await read_object(client_, where, kDocumentMax);
    if (!text) continue;
    out.push_back(report_from(parsed(*text)));
    // What was read may be newer than the list: then it is read once more, and no harm done.
    known[one.key] = {one.etag, out.back()};
  }
  co_return out;
}

Task<void> JobStore::write_report(HostReport report) {
  const json document = {{"instance", report.instance},   {"address", report.address},
                         {"role", report.role},           {"state", to_string(report.state)},
                         {"exit_code", report.exit_code}, {"note", report.note},
                         {"since", report.since}};
  const std::string text = document.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  co_await write(fmt::format("status/{}.json", report.instance), text);
}

Task<std::vector<aws::S3Object>> JobStore::logs() {
  const aws::S3Address below = address("logs/");
  co_return co_await aws::list_objects(client_, below, kObjectsMax);
}

Task<void> JobStore::write_uploaded(std::string key) {
  const json document = {{"script", key}};
  co_await write("job.json", document.dump() + "\n");
}

Task<void> JobStore::remove(bool all) {
  const std::optional<std::string> text = co_await read("job.json");
  const std::string script = text ? field(parsed(*text), "script") : "";
  std::vector<aws::S3Address> gone;
  if (script.starts_with(prefix_ + "/")) gone.push_back({bucket_, script});
  if (all) {
    const aws::S3Address below = address("status/");
    const std::vector<aws::S3Object> found = co_await aws::list_objects(client_, below, kObjectsMax);
    for (const aws::S3Object& one : found) gone.push_back({bucket_, one.key});
  }
  for (const char* name : {"key", "rdzv.json", "job.json"}) gone.push_back(address(name));
  for (const aws::S3Address& one : gone) co_await aws::delete_object(client_, one);
}

}  // namespace rubato::petctl
