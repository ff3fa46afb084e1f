// S3: objects, and uploads in parts. Each call is idempotent but create_upload.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "aws/client.h"

namespace rubato::aws {

struct S3Address {
  std::string bucket;
  std::string key;
};
std::string to_string(const S3Address& address);  // s3://bucket/key
// Throws a usage Error for what is not s3://BUCKET[/KEY] with a bucket's name in it.
S3Address parse_s3_address(std::string_view text);
bool is_bucket_name(std::string_view name);
inline constexpr const char* kBucketRule = "it has 3 to 63 letters, digits, dots, hyphens and underscores";
bool is_s3_address(std::string_view text);

struct S3Object {
  std::string key;
  uint64_t size = 0;
  std::string etag;             // without its quotes
  std::string checksum_sha256;  // base64; of an upload in N parts: of their checksums, with "-N"; empty: not kept
  bool etag_is_md5 = true;      // not for what is encrypted by a key of KMS
  std::string modified;         // RFC 3339
};

// nullopt: there is none. With a part's number: that part's size instead of the object's.
Task<std::optional<S3Object>> head_object(Client& client, S3Address address, int part = 0);

// The bytes [offset, offset + size) of the object that has this etag; kConflict when it was replaced meanwhile.
Task<std::string> get_range(Client& client, S3Address address, uint64_t offset, uint64_t size, std::string etag);

// Bytes that are read anew for each try, and the hash that they must have, 64 digits.
struct S3Bytes {
  std::function<std::string()> read;
  std::string sha256;
};
Task<void> put_object(Client& client, S3Address address, S3Bytes bytes);
Task<void> delete_object(Client& client, S3Address address);

// At most `most` objects below a prefix, in the order of their keys.
Task<std::vector<S3Object>> list_objects(Client& client, S3Address prefix, size_t most);

struct S3Part {
  int number = 0;  // from 1
  uint64_t size = 0;
  std::string etag;
  std::string checksum_sha256;  // base64; empty where the server keeps none
};
Task<std::string> create_upload(Client& client, S3Address address);  // its id
Task<S3Part> upload_part(Client& client, S3Address address, std::string upload, int number, S3Bytes bytes);
// nullopt: there is no such upload (any more).
Task<std::optional<std::vector<S3Part>>> list_parts(Client& client, S3Address address, std::string upload);
Task<void> complete_upload(Client& client, S3Address address, std::string upload, std::vector<S3Part> parts);
// The object that has this etag, copied by S3 itself; of at most kCopyMax bytes. kConflict: it was replaced meanwhile.
inline constexpr uint64_t kCopyMax = uint64_t{5} << 30;
Task<void> copy_object(Client& client, S3Address from, std::string etag, S3Address to);
// The same for a range of it, as a part of an upload.
Task<S3Part> copy_part(Client& client, S3Address from, std::string etag, S3Address to, std::string upload, S3Part range,
                       uint64_t offset);
Task<void> abort_upload(Client& client, S3Address address, std::string upload);

// A URL that anybody may get (or, with "PUT", write) the object by, for a while.
Task<std::string> presign_object(Client& client, S3Address address, std::string method, Duration valid_for);

}  // namespace rubato::aws
