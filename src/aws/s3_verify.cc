#include "aws/s3_verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "rest/base64.h"
#include "rest/hmac.h"

namespace rubato::aws {

int parts_of_hash(std::string_view hash) {
  const size_t dash = hash.rfind('-');
  if (dash == std::string_view::npos) return 0;
  int out = 0;
  const auto [end, error] = std::from_chars(hash.data() + dash + 1, hash.data() + hash.size(), out);
  return error == std::errc() && end == hash.data() + hash.size() && out > 0 ? out : 0;
}

bool is_made_of(const S3Object& object, const std::vector<S3Part>& parts) {
  const auto count = static_cast<int>(parts.size());
  if (parts_of_hash(object.checksum_sha256) == count) {
    Sha256 joined;
    for (const S3Part& part : parts) joined.update(rest::unbase64(part.checksum_sha256).value_or(""));
    return object.checksum_sha256 == fmt::format("{}-{}", rest::base64(rest::digest_bytes(joined.hex())), count);
  }
  if (!object.etag_is_md5 || parts_of_hash(object.etag) != count) return false;
  constexpr size_t kDigits = 32;
  rest::Md5 joined;
  for (const S3Part& part : parts) {
    if (part.etag.size() != kDigits) return false;
    joined.update(rest::digest_bytes(part.etag));
  }
  return object.etag == fmt::format("{}-{}", joined.hex(), count);
}

std::string_view to_string(S3Verifier::Method method) {
  switch (method) {
    case S3Verifier::Method::kNone: return "length";
    case S3Verifier::Method::kSha256: return "SHA-256";
    case S3Verifier::Method::kMd5: return "MD5";
  }
  return "";
}

S3Verifier::S3Verifier(const S3Object& object, uint64_t part_size, bool is_aws) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  const std::string etag = object.etag.substr(0, object.etag.find('-'));
  std::string hash;
  const bool has_md5 = object.etag_is_md5 && etag.size() == 32 && std::ranges::all_of(etag, is_digit);
  if (!object.checksum_sha256.empty()) {
    method_ = Method::kSha256;
    hash = object.checksum_sha256;
    if (!is_aws && has_md5 && object.etag == etag) expected_md5_ = etag;
  } else if (has_md5) {
    method_ = Method::kMd5;
    hash = object.etag;
  }
  parts_ = parts_of_hash(hash);
  if (method_ == Method::kSha256 && parts_ == 0 && parts_of_hash(object.etag) > 0) {
    is_of_either_ = true;
    parts_ = parts_of_hash(object.etag);
  }
  expected_ = parts_ > 0 ? hash.substr(0, hash.rfind('-')) : hash;
  part_size_ = part_size;
  // Parts of one size, the last one smaller: else the hash is of a shape that we cannot repeat.
  const uint64_t counted = part_size == 0 ? 0 : (object.size + part_size - 1) / part_size;
  const bool fits = parts_ == 0 || counted == static_cast<uint64_t>(parts_);
  if (!fits) method_ = Method::kNone;
}

void S3Verifier::update(std::string_view bytes) {
  if (method_ == Method::kNone) return;
  while (!bytes.empty()) {
    size_t taken = bytes.size();
    if (parts_ > 0) taken = static_cast<size_t>(std::min<uint64_t>(taken, part_size_ - in_part_));
    const std::string_view now = bytes.substr(0, taken);
    if (method_ == Method::kSha256) sha_.update(now);
    if (is_of_either_) sha_of_whole_.update(now);
    if (!expected_md5_.empty()) md5_of_whole_.update(now);
    if (method_ == Method::kMd5) md5_.update(now);
    in_part_ += taken;
    bytes.remove_prefix(taken);
    if (parts_ > 0 && in_part_ == part_size_) end_part();
  }
}

void S3Verifier::end_part() {
  if (method_ == Method::kSha256) sha_of_parts_.update(rest::digest_bytes(sha_.hex()));
  if (method_ == Method::kMd5) md5_of_parts_.update(md5_.digest());
  sha_ = Sha256();
  md5_ = rest::Md5();
  in_part_ = 0;
}

std::optional<std::string> S3Verifier::mismatch() {
  if (method_ == Method::kNone) return std::nullopt;
  if (parts_ > 0 && in_part_ > 0) end_part();
  std::string got;
  if (method_ == Method::kSha256) got = rest::base64(rest::digest_bytes((parts_ > 0 ? sha_of_parts_ : sha_).hex()));
  if (method_ == Method::kMd5) got = (parts_ > 0 ? md5_of_parts_ : md5_).hex();
  if (got == expected_) return std::nullopt;
  if (!expected_md5_.empty() && md5_of_whole_.hex() == expected_md5_) return std::nullopt;
  if (is_of_either_ && rest::base64(rest::digest_bytes(sha_of_whole_.hex())) == expected_) return std::nullopt;
  return std::string(to_string(method_)) + " is " + got + ", should be " + expected_;
}

}  // namespace rubato::aws
