#include "gcp/gcs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/text.h"
#include "rest/download.h"
#include "rest/json.h"

namespace rubato::gcp {
namespace {

using nlohmann::json;
using rest::CloudError;
using rest::list_at;
using rest::text_at;

constexpr Duration kPieceTimeout = 5min;
constexpr size_t kPageMax = 1000;
constexpr uint64_t kRewriteCallsMax = 1'000'000;

uint64_t number_of(std::string_view text) {
  uint64_t out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

GcsObject object_of(const json& document) {
  GcsObject out;
  out.key = text_at(document, "name");
  out.size = number_of(text_at(document, "size"));  // 64-bit numbers travel as texts
  out.generation = text_at(document, "generation");
  out.crc32c = text_at(document, "crc32c");
  return out;
}

Call storage_call(std::string operation, std::string method, std::string path) {
  Call call;
  call.service = kStorage;
  call.operation = std::move(operation);
  call.method = std::move(method);
  call.path = std::move(path);
  return call;
}

std::string object_path(const GcsAddress& address) {
  return fmt::format("/storage/v1/b/{}/o/{}", rest::percent_encode(address.bucket), rest::percent_encode(address.key));
}

// "bytes=0-1048575": the last byte that is kept; no such header: none is.
UploadState state_of(const HttpResponse& response, uint64_t size) {
  UploadState out;
  out.is_done = response.status == 200 || response.status == 201;
  if (out.is_done) {
    out.kept = size;
    const json document = rest::parse_bounded(response.body);
    if (document.is_object() && document.contains("size")) out.object = object_of(document);
  }
  const std::string range = rest::header_of(response, "range");
  const size_t dash = range.rfind('-');
  if (!out.is_done && dash != std::string::npos) out.kept = number_of(std::string_view(range).substr(dash + 1)) + 1;
  return out;
}

}  // namespace

std::string to_string(const GcsAddress& address) { return fmt::format("gs://{}/{}", address.bucket, address.key); }

bool is_gcs_address(std::string_view text) { return text.starts_with("gs://"); }

GcsAddress parse_gcs_address(std::string_view text) {
  const auto rest = strip_prefix(text, "gs://");
  const auto parts = rest ? split_once(*rest, '/') : std::nullopt;
  GcsAddress out;
  out.bucket = parts ? parts->first : rest.value_or("");
  if (parts) out.key = parts->second;
  const auto fine = [](char c) {
    return ('a' <= c && c <= 'z') || ('0' <= c && c <= '9') || c == '-' || c == '_' || c == '.';
  };
  if (out.bucket.size() < 3 || out.bucket.size() > 222 || !std::ranges::all_of(out.bucket, fine)) {
    throw Error(ErrorCode::kUsage, fmt::format("'{}' is no address of Cloud Storage", text), "",
                "write gs://BUCKET/KEY; a bucket has small letters, digits, dots, hyphens and underscores");
  }
  return out;
}

Task<std::optional<GcsObject>> get_object(Client& client, GcsAddress address) {
  Call call = storage_call("objects.get", "GET", object_path(address));
  try {
    const json document = co_await client.call(std::move(call));
    if (!document.contains("size")) {
      throw Error(ErrorCode::kUnavailable, "the server does not tell how long it is", to_string(address));
    }
    co_return object_of(document);
  } catch (const CloudError& error) {
    if (error.code != ErrorCode::kNotFound) throw;
  }
  co_return std::nullopt;
}

Task<std::string> get_range(Client& client, GcsAddress address, std::string generation, uint64_t offset,
                            uint64_t size) {
  Call call = storage_call("objects.get", "GET", object_path(address));
  call.query.emplace_back("alt", "media");
  if (!generation.empty()) call.query.emplace_back("generation", generation);
  // What is kept compressed comes as it is kept: unpacked on the way, neither ranges nor checksums would fit.
  std::map<std::string, std::string> headers{{"range", fmt::format("bytes={}-{}", offset, offset + size - 1)},
                                             {"accept-encoding", "gzip"}};
  HttpResponse response;
  bool replaced = false;
  try {
    response = co_await client.send(std::move(call), std::move(headers), std::string());
  } catch (const CloudError& error) {
    replaced = error.code == ErrorCode::kNotFound;
    if (!replaced) throw;
  }
  if (replaced) {
    throw Error(ErrorCode::kConflict, fmt::format("{} was replaced while it was read", to_string(address)), "",
                "try again");
  }
  rest::cut_to_range(response, offset, size);
  if (response.body.size() != size) {
    throw Error(ErrorCode::kUnavailable, fmt::format("{} bytes came instead of {}", response.body.size(), size),
                to_string(address), "try again");
  }
  co_return std::move(response.body);
}

Task<std::vector<GcsObject>> list_objects(Client& client, GcsAddress prefix, size_t most) {
  std::vector<GcsObject> out;
  std::string token;
  do {
    Call call =
        storage_call("objects.list", "GET", fmt::format("/storage/v1/b/{}/o", rest::percent_encode(prefix.bucket)));
    call.query.emplace_back("prefix", prefix.key);
    call.query.emplace_back("maxResults", std::to_string(std::min(kPageMax, most - out.size())));
    if (!token.empty()) call.query.emplace_back("pageToken", token);
    const json document = co_await client.call(std::move(call));
    for (const json& one : list_at(document, "items")) {
      GcsObject object = object_of(one);
      if (!object.key.starts_with(prefix.key)) continue;  // whatever the server let through
      out.push_back(std::move(object));
      if (out.size() >= most) break;
    }
    const std::string before = std::move(token);
    token = text_at(document, "nextPageToken");
    if (!token.empty() && token == before) {
      throw Error(ErrorCode::kUnavailable, "the list of objects does not go on", to_string(prefix));
    }
  } while (!token.empty() && out.size() < most);
  co_return out;
}

Task<void> rewrite_object(Client& client, GcsAddress from, std::string generation, GcsAddress to,
                          std::function<void(uint64_t)> advanced) {
  std::string token;
  for (uint64_t calls = 0; calls < kRewriteCallsMax; ++calls) {
    Call call = storage_call("objects.rewrite", "POST",
                             fmt::format("{}/rewriteTo/b/{}/o/{}", object_path(from), rest::percent_encode(to.bucket),
                                         rest::percent_encode(to.key)));
    call.timeout = kPieceTimeout;
    if (!generation.empty()) call.query.emplace_back("sourceGeneration", generation);
    if (!token.empty()) call.query.emplace_back("rewriteToken", token);
    const json document = co_await client.call(std::move(call));
    if (advanced) advanced(number_of(text_at(document, "totalBytesRewritten")));
    const auto done = document.find("done");
    if (done == document.end() || (done->is_boolean() && done->get<bool>())) co_return;
    token = text_at(document, "rewriteToken");
    if (token.empty()) break;
  }
  throw Error(ErrorCode::kUnavailable, "the server does not end its copy", to_string(to), "try again");
}

Task<void> delete_object(Client& client, GcsAddress address) {
  Call call = storage_call("objects.delete", "DELETE", object_path(address));
  std::map<std::string, std::string> headers;
  try {
    (void)co_await client.send(std::move(call), std::move(headers), std::string());
  } catch (const CloudError& error) {
    if (error.code != ErrorCode::kNotFound) throw;
  }
}

Task<std::string> begin_upload(Client& client, GcsAddress address, uint64_t size, std::string crc32c) {
  Call call = storage_call("objects.insert", "POST",
                           fmt::format("/upload/storage/v1/b/{}/o", rest::percent_encode(address.bucket)));
  call.query.emplace_back("uploadType", "resumable");
  call.query.emplace_back("name", address.key);
  const json about = {{"crc32c", crc32c}, {"contentType", "application/octet-stream"}};
  std::map<std::string, std::string> headers{{"content-type", "application/json"},
                                             {"x-upload-content-length", std::to_string(size)},
                                             {"x-upload-content-type", "application/octet-stream"}};
  const HttpResponse response = co_await client.send(std::move(call), std::move(headers), about.dump());
  const std::string location = rest::header_of(response, "location");
  const size_t path = location.find('/', location.find("://") == std::string::npos ? 0 : location.find("://") + 3);
  if (location.empty() || path == std::string::npos) {
    throw Error(ErrorCode::kUnavailable, "Cloud Storage begins no upload", to_string(address), "try again");
  }
  // Of the server's root; a call's path is below the endpoint's, which may be deeper.
  const std::string session = location.substr(path), base = client.url_of(kStorage).path;
  co_return session.starts_with(base + "/") ? session.substr(base.size()) : session;
}

Task<std::optional<UploadState>> find_upload(Client& client, std::string session, uint64_t size) {
  Call call = storage_call("objects.insert", "PUT", std::move(session));
  std::map<std::string, std::string> headers{{"content-range", fmt::format("bytes */{}", size)}};
  try {
    const HttpResponse response = co_await client.send(std::move(call), std::move(headers), std::string());
    co_return state_of(response, size);
  } catch (const CloudError& error) {
    // 410 and 404: it was given up, or is too old; 400: it is no upload of this size.
    if (error.status != 404 && error.status != 410 && error.status != 400) throw;
  }
  co_return std::nullopt;
}

Task<UploadState> send_piece(Client& client, std::string session, uint64_t offset, std::string bytes, uint64_t size) {
  Call call = storage_call("objects.insert", "PUT", std::move(session));
  call.timeout = kPieceTimeout;
  std::string range = fmt::format("bytes */{}", size);
  if (!bytes.empty()) range = fmt::format("bytes {}-{}/{}", offset, offset + bytes.size() - 1, size);
  std::map<std::string, std::string> headers{{"content-range", range}};
  const HttpResponse response = co_await client.send(std::move(call), std::move(headers), std::move(bytes));
  co_return state_of(response, size);
}

}  // namespace rubato::gcp
