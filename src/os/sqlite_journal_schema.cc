#include "os/sqlite_journal_schema.h"

#include <zlib.h>

#include <array>

namespace rubato::os {

namespace {

// As ALTER TABLE ADD COLUMN leaves them: a file that was brought up to date is no different from a new one.
JournalSchema schema_with(const std::string& columns) {
  return {{"meta", "CREATE TABLE meta(version INTEGER NOT NULL, epoch INTEGER NOT NULL)"},
          {"records", "CREATE TABLE records(offset INTEGER PRIMARY KEY, bytes BLOB NOT NULL" + columns + ")"},
          {"snapshots", "CREATE TABLE snapshots(offset INTEGER PRIMARY KEY, bytes BLOB NOT NULL" + columns + ")"}};
}

}  // namespace

const JournalSchema& journal_schema(uint64_t version) {
  static const JournalSchema first = schema_with("");
  static const JournalSchema second = schema_with(", crc32 INTEGER NOT NULL DEFAULT 0");
  static const JournalSchema third = schema_with(", crc32 INTEGER NOT NULL DEFAULT 0, chain BLOB NOT NULL DEFAULT x''");
  return version == 1 ? first : version == 2 ? second : third;
}

uint64_t journal_checksum(uint64_t offset, std::string_view bytes) {
  std::array<Bytef, 8> head;
  for (size_t i = 0; i < head.size(); ++i) head[i] = static_cast<Bytef>(offset >> (8 * i));
  const uLong sum = crc32_z(0, head.data(), head.size());
  return crc32_z(sum, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
}

}  // namespace rubato::os
