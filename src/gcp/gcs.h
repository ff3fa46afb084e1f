// Cloud Storage: objects, and uploads that go on where they ended. By its JSON API.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gcp/client.h"

namespace rubato::gcp {

struct GcsAddress {
  std::string bucket;
  std::string key;
};
std::string to_string(const GcsAddress& address);  // gs://bucket/key
// Throws a usage Error for what is not gs://BUCKET[/KEY] with a bucket's name in it.
GcsAddress parse_gcs_address(std::string_view text);
bool is_gcs_address(std::string_view text);

struct GcsObject {
  std::string key;
  uint64_t size = 0;
  std::string generation;  // another one when it is replaced
  std::string crc32c;      // base64; of every object
};

// nullopt: there is none.
Task<std::optional<GcsObject>> get_object(Client& client, GcsAddress address);
// The bytes [offset, offset + size) of that generation; kConflict when it was replaced meanwhile.
Task<std::string> get_range(Client& client, GcsAddress address, std::string generation, uint64_t offset,
                            uint64_t size);
// At most `most` objects below a prefix, in the order of their keys.
Task<std::vector<GcsObject>> list_objects(Client& client, GcsAddress prefix, size_t most);

// That generation as another object, copied by Google itself, in as many calls as it wants. `advanced` is told of the
// bytes that are done.
Task<void> rewrite_object(Client& client, GcsAddress from, std::string generation, GcsAddress to,
                          std::function<void(uint64_t)> advanced);

// One that is not there is none the less deleted.
Task<void> delete_object(Client& client, GcsAddress address);

// ---- uploads ----

// Where an upload goes on: a path of the service, good for a week. Google refuses bytes that have not this checksum.
Task<std::string> begin_upload(Client& client, GcsAddress address, uint64_t size, std::string crc32c);

struct UploadState {
  bool is_done = false;
  uint64_t kept = 0;                // so many bytes Google has
  std::optional<GcsObject> object;  // what it has become, where the server says so
};
// What Google has of it; nullopt: there is no such upload any more.
Task<std::optional<UploadState>> find_upload(Client& client, std::string session, uint64_t size);
// Bytes from `offset` on, of `size` in all. Google may keep fewer of them than were sent.
Task<UploadState> send_piece(Client& client, std::string session, uint64_t offset, std::string bytes, uint64_t size);

}  // namespace rubato::gcp
