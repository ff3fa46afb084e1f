#include "aws/s3.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "aws/s3_verify.h"
#include "core/error.h"
#include "core/text.h"
#include "rest/base64.h"
#include "rest/cloud_error.h"
#include "rest/download.h"
#include "rest/hmac.h"

namespace rubato::aws {
namespace {

constexpr size_t kListPagesMax = 100'000;

// A bucket has a host of its own, unless its name would not fit AWS's certificate or the server is another's.
RestCall object_call(const Client& client, const S3Address& address, std::string operation, std::string method) {
  RestCall call;
  call.operation = std::move(operation);
  call.method = std::move(method);
  call.bucket = address.bucket;
  const bool own_host = !client.has_own_endpoint(kS3) && address.bucket.find('.') == std::string::npos;
  if (own_host) call.host_prefix = address.bucket;
  call.path = (own_host ? "" : "/" + address.bucket) + "/" + address.key;
  return call;
}

std::string unquoted(std::string_view etag) {
  if (const auto weak = strip_prefix(etag, "W/")) etag = *weak;
  while (etag.starts_with('"')) etag.remove_prefix(1);
  while (etag.ends_with('"')) etag.remove_suffix(1);
  return std::string(etag);
}

uint64_t number_in(std::string_view text) {
  uint64_t out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

rest::XmlNode xml_answer(const HttpResponse& response, std::string_view what) {
  rest::XmlResult parsed = rest::parse_xml(response.body);
  if (!parsed.problem.empty()) {
    throw Error(ErrorCode::kUnavailable, fmt::format("s3 {}: the answer is not XML: {}", what, parsed.problem), "",
                "is a proxy or another server in between?");
  }
  return std::move(parsed.root);
}

// Hash and length go along: the server compares them with what it got.
void set_bytes(RestCall& call, S3Bytes bytes) {
  call.read_body = std::move(bytes.read);
  call.headers["x-amz-checksum-sha256"] = rest::base64(rest::digest_bytes(bytes.sha256));
  call.payload_hash = std::move(bytes.sha256);
}

// S3 may find after its 200 that it cannot copy.
void set_source(RestCall& call, const S3Address& from, const std::string& etag) {
  call.headers["x-amz-copy-source"] = "/" + from.bucket + "/" + rest::percent_encode(from.key, rest::Slash::kKept);
  if (!etag.empty()) call.headers["x-amz-copy-source-if-match"] = "\"" + etag + "\"";
  call.fails_with_200 = true;
  call.timeout = 10min;
}

}  // namespace

std::string to_string(const S3Address& address) { return fmt::format("s3://{}/{}", address.bucket, address.key); }

bool is_bucket_name(std::string_view name) {
  if (name.size() < 3 || name.size() > 63) return false;
  return std::ranges::all_of(name, [](char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return letter || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
  });
}

bool is_s3_address(std::string_view text) { return text.starts_with("s3://"); }

S3Address parse_s3_address(std::string_view text) {
  const auto rest = strip_prefix(text, "s3://");
  S3Address out;
  if (rest) {
    const size_t slash = rest->find('/');
    out.bucket = rest->substr(0, slash);
    if (slash != std::string_view::npos) out.key = rest->substr(slash + 1);
  }
  if (rest && !out.bucket.empty() && !is_bucket_name(out.bucket)) {
    throw Error(ErrorCode::kUsage, fmt::format("'{}': '{}' cannot be the name of a bucket", text, out.bucket), "",
                kBucketRule);
  }
  if (out.bucket.empty()) {
    throw Error(ErrorCode::kUsage, fmt::format("'{}' names no bucket", text), "", "write it as s3://BUCKET/KEY");
  }
  if (out.key.size() > 1024) throw Error(ErrorCode::kUsage, "a key has at most 1024 bytes", std::string(text));
  return out;
}

Task<std::optional<S3Object>> head_object(Client& client, S3Address address, int part) {
  RestCall call = object_call(client, address, "HeadObject", "HEAD");
  call.headers["x-amz-checksum-mode"] = "ENABLED";
  if (part > 0) call.query.emplace_back("partNumber", std::to_string(part));
  const HttpResponse response = co_await client.rest(kS3, std::move(call), 404);
  if (response.status == 404) co_return std::nullopt;
  S3Object out;
  out.key = address.key;
  const std::string length = rest::header_of(response, "content-length");
  out.size = number_in(length);
  if (length.empty()) {  // a server, or a proxy, that leaves it out where there is no body
    const auto listed = co_await list_objects(client, address, 1);
    if (listed.empty() || listed.front().key != address.key) {
      throw Error(ErrorCode::kUnavailable, "the server does not tell how long it is", to_string(address));
    }
    out.size = listed.front().size;
  }
  out.etag = unquoted(rest::header_of(response, "etag"));
  out.checksum_sha256 = rest::header_of(response, "x-amz-checksum-sha256");
  out.etag_is_md5 = !rest::header_of(response, "x-amz-server-side-encryption").starts_with("aws:kms") &&
                    rest::header_of(response, "x-amz-server-side-encryption-customer-algorithm").empty();
  out.modified = rest::header_of(response, "last-modified");
  co_return out;
}

Task<std::string> get_range(Client& client, S3Address address, uint64_t offset, uint64_t size, std::string etag) {
  RestCall call = object_call(client, address, "GetObject", "GET");
  call.headers["range"] = fmt::format("bytes={}-{}", offset, offset + size - 1);
  if (!etag.empty()) call.headers["if-match"] = "\"" + etag + "\"";
  HttpResponse response = co_await client.rest(kS3, std::move(call));
  rest::cut_to_range(response, offset, size);
  if (response.body.size() != size) {
    throw Error(ErrorCode::kUnavailable,
                fmt::format("{}: {} bytes came instead of {}", to_string(address), response.body.size(), size), "",
                "try again");
  }
  co_return std::move(response.body);
}

Task<void> put_object(Client& client, S3Address address, S3Bytes bytes) {
  RestCall call = object_call(client, address, "PutObject", "PUT");
  set_bytes(call, std::move(bytes));
  co_await client.rest(kS3, std::move(call));
}

Task<void> delete_object(Client& client, S3Address address) {
  RestCall call = object_call(client, address, "DeleteObject", "DELETE");
  co_await client.rest(kS3, std::move(call), 404);
}

Task<std::vector<S3Object>> list_objects(Client& client, S3Address prefix, size_t most) {
  std::vector<S3Object> out;
  std::string token, marker, last;
  for (size_t page = 0; page < kListPagesMax; ++page) {
    S3Address bucket;
    bucket.bucket = prefix.bucket;
    RestCall call = object_call(client, bucket, "ListObjectsV2", "GET");
    call.query = {{"list-type", "2"}, {"prefix", prefix.key}, {"encoding-type", "url"}};
    if (!token.empty()) call.query.emplace_back("continuation-token", token);
    if (!marker.empty()) call.query.emplace_back("marker", marker);
    const HttpResponse response = co_await client.rest(kS3, std::move(call));
    const rest::XmlNode root = xml_answer(response, "ListObjectsV2");
    const bool encoded = root.text_at("EncodingType") == "url";
    for (const rest::XmlNode* one : root.list("", "Contents")) {
      S3Object object;
      object.key = one->text_at("Key");
      if (encoded) {
        std::ranges::replace(object.key, '+', ' ');
        object.key = rest::percent_decode(object.key);
      }
      object.size = number_in(one->text_at("Size"));
      object.etag = unquoted(one->text_at("ETag"));
      object.modified = one->text_at("LastModified");
      last = object.key;
      if (!object.key.starts_with(prefix.key)) continue;  // whatever the server let through
      out.push_back(std::move(object));
      if (out.size() >= most) co_return out;
    }
    if (root.text_at("IsTruncated") != "true") break;
    token = root.text_at("NextContinuationToken");
    if (!token.empty()) continue;
    // A server that knows only the first version of this call goes on behind a name.
    if (last.empty() || last == marker) {
      throw Error(ErrorCode::kUnavailable, "the list of objects does not go on", to_string(prefix));
    }
    marker = last;
  }
  co_return out;
}

Task<std::string> create_upload(Client& client, S3Address address) {
  RestCall call = object_call(client, address, "CreateMultipartUpload", "POST");
  call.query.emplace_back("uploads", "");
  call.headers["x-amz-checksum-algorithm"] = "SHA256";
  const HttpResponse response = co_await client.rest(kS3, std::move(call));
  const rest::XmlNode root = xml_answer(response, "CreateMultipartUpload");
  std::string id(root.text_at("UploadId"));
  if (id.empty()) {
    throw Error(ErrorCode::kUnavailable, "s3 CreateMultipartUpload: no UploadId came", to_string(address));
  }
  co_return id;
}

Task<S3Part> upload_part(Client& client, S3Address address, std::string upload, int number, S3Bytes bytes) {
  RestCall call = object_call(client, address, "UploadPart", "PUT");
  call.query = {{"partNumber", std::to_string(number)}, {"uploadId", upload}};
  set_bytes(call, std::move(bytes));
  S3Part out;
  out.number = number;
  const std::string sent = call.headers["x-amz-checksum-sha256"];
  const HttpResponse response = co_await client.rest(kS3, std::move(call));
  out.etag = unquoted(rest::header_of(response, "etag"));
  if (!rest::header_of(response, "x-amz-checksum-sha256").empty()) out.checksum_sha256 = sent;
  co_return out;
}

Task<std::optional<std::vector<S3Part>>> list_parts(Client& client, S3Address address, std::string upload) {
  std::vector<S3Part> out;
  std::string marker;
  for (size_t page = 0; page < kListPagesMax; ++page) {
    RestCall call = object_call(client, address, "ListParts", "GET");
    call.query.emplace_back("uploadId", upload);
    if (!marker.empty()) call.query.emplace_back("part-number-marker", marker);
    const HttpResponse response = co_await client.rest(kS3, std::move(call), 404);
    if (response.status == 404) co_return std::nullopt;
    const rest::XmlNode root = xml_answer(response, "ListParts");
    for (const rest::XmlNode* one : root.list("", "Part")) {
      S3Part part;
      part.number = static_cast<int>(number_in(one->text_at("PartNumber")));
      part.size = number_in(one->text_at("Size"));
      part.etag = unquoted(one->text_at("ETag"));
      part.checksum_sha256 = one->text_at("ChecksumSHA256");
      out.push_back(std::move(part));
    }
    marker = root.text_at("NextPartNumberMarker");
    if (root.text_at("IsTruncated") != "true" || marker.empty()) break;
  }
  co_return out;
}

Task<void> complete_upload(Client& client, S3Address address, std::string upload, std::vector<S3Part> parts) {
  RestCall call = object_call(client, address, "CompleteMultipartUpload", "POST");
  call.query.emplace_back("uploadId", upload);
  call.headers["content-type"] = "application/xml";
  call.fails_with_200 = true;
  call.timeout = 10min;  // S3 puts the parts together before it answers
  call.body = R"(<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/">)";
  for (const S3Part& part : parts) {
    call.body += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>&quot;{}&quot;</ETag>", part.number,
                             rest::xml_escape(part.etag));
    if (!part.checksum_sha256.empty()) {
      call.body += fmt::format("<ChecksumSHA256>{}</ChecksumSHA256>", part.checksum_sha256);
    }
    call.body += "</Part>";
  }
  call.body += "</CompleteMultipartUpload>";
  std::optional<rest::CloudError> refused;
  try {
    co_await client.rest(kS3, std::move(call));
    co_return;
  } catch (const rest::CloudError& error) {
    if (error.reason != "NoSuchUpload") throw;
    refused = error;
  }
  // Completed by a try whose answer was lost? S3 forgets an upload with its end.
  const std::optional<S3Object> made = co_await head_object(client, address);
  if (!made || !is_made_of(*made, parts)) throw *refused;
}

Task<void> copy_object(Client& client, S3Address from, std::string etag, S3Address to) {
  RestCall call = object_call(client, to, "CopyObject", "PUT");
  set_source(call, from, etag);
  co_await client.rest(kS3, std::move(call));
}

Task<S3Part> copy_part(Client& client, S3Address from, std::string etag, S3Address to, std::string upload, S3Part range,
                       uint64_t offset) {
  RestCall call = object_call(client, to, "UploadPartCopy", "PUT");
  call.query = {{"partNumber", std::to_string(range.number)}, {"uploadId", upload}};
  set_source(call, from, etag);
  call.headers["x-amz-copy-source-range"] = fmt::format("bytes={}-{}", offset, offset + range.size - 1);
  const HttpResponse response = co_await client.rest(kS3, std::move(call));
  const rest::XmlNode root = xml_answer(response, "UploadPartCopy");
  range.etag = unquoted(root.text_at("ETag"));
  range.checksum_sha256 = root.text_at("ChecksumSHA256");
  if (range.etag.empty()) {
    throw Error(ErrorCode::kUnavailable, "s3 UploadPartCopy: no ETag came", to_string(to));
  }
  co_return range;
}

Task<void> abort_upload(Client& client, S3Address address, std::string upload) {
  RestCall call = object_call(client, address, "AbortMultipartUpload", "DELETE");
  call.query.emplace_back("uploadId", upload);
  co_await client.rest(kS3, std::move(call), 404);
}

Task<std::string> presign_object(Client& client, S3Address address, std::string method, Duration valid_for) {
  RestCall call = object_call(client, address, method == "PUT" ? "PutObject" : "GetObject", method);
  co_return co_await client.presign(kS3, std::move(call), valid_for);
}

}  // namespace rubato::aws
