// S3Verifier: whether the bytes that came are those that were put, by what S3 keeps of them. Pure.
//
// SHA-256 where the object has it (what we upload does), else the ETag, which is an MD5. Of an object that was uploaded
// in parts both are of the parts' own hashes, so that the size of its parts must be known.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aws/s3.h"
#include "rest/md5.h"
#include "core/sha256.h"

namespace rubato::aws {

class S3Verifier {
 public:
  // `part_size` is that of the object's first part; 0 when it is not known. `is_aws`: no other server, which may keep a
  // SHA-256 that is of something else: moto's copies have that of the parts that they were copied from. There bytes are
  // right that have the MD5.
  S3Verifier(const S3Object& object, uint64_t part_size, bool is_aws = true);

  // In order, from the first byte.
  void update(std::string_view bytes);

  enum class Method { kNone, kSha256, kMd5 };
  Method method() const { return method_; }
  // nullopt: they are right, or there is nothing to compare them with. Else both values.
  std::optional<std::string> mismatch();

 private:
  void end_part();

  Method method_ = Method::kNone;
  std::string expected_;  // base64 of SHA-256, or digits of MD5; without "-N"
  int parts_ = 0;         // 0: of the whole
  // An object of several parts whose hash does not say of what it is: some servers leave out the "-N".
  bool is_of_either_ = false;
  std::string expected_md5_;  // of the whole; empty: SHA-256 alone counts
  uint64_t part_size_ = 0, in_part_ = 0;
  Sha256 sha_, sha_of_parts_, sha_of_whole_;
  rest::Md5 md5_, md5_of_parts_, md5_of_whole_;
};
std::string_view to_string(S3Verifier::Method method);

// Whether the object is what these parts make, by what S3 keeps of it; false: it is not, or cannot be told.
bool is_made_of(const S3Object& object, const std::vector<S3Part>& parts);

// How many parts a hash of parts is of: 3 for "abc-3"; 0 when it is of the whole.
int parts_of_hash(std::string_view hash);

}  // namespace rubato::aws
