// Files to and from Cloud Storage, by tests/gcp/fake_gcp.py, which computes checksums of its own.
#include "gcp/gcs_transfer.h"

#include <gtest/gtest.h>

#include "gcp/fake_gcp_testing.h"
#include "rest/crc32c.h"

namespace rubato::gcp {
namespace {

using nlohmann::json;

// RFC 3720, B.4, and the check value of the catalogue of CRCs.
TEST(Crc32c, KnownValues) {
  const auto of = [](std::string_view bytes) {
    rest::Crc32c crc;
    crc.update(bytes.substr(0, bytes.size() / 3));
    crc.update(bytes.substr(bytes.size() / 3));
    return crc.value();
  };
  EXPECT_EQ(of(""), 0u);
  EXPECT_EQ(of("123456789"), 0xe3069283u);
  EXPECT_EQ(of(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(of(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(GcsAddress, IsReadAndRefused) {
  EXPECT_EQ(parse_gcs_address("gs://data/a/b c").key, "a/b c");
  EXPECT_EQ(parse_gcs_address("gs://data").bucket, "data");
  for (const char* bad : {"gs://", "gs://A/b", "gs://a", "s3://data/x"})
    EXPECT_THROW(parse_gcs_address(bad), Error) << bad;
}

class GcsTransferTest : public FakeGcpFixture {
 protected:
  void SetUp() override {
    rest::FakeCloudFixture::SetUp();
    start({{"buckets", {"data"}}});
    rules.part_size = 256 << 10;
    rules.state = folder + "/state";
    for (int i = 0; i < 100'000; ++i) bytes += std::to_string(i * 7919) + ",";
    files.write_atomically(folder + "/there", bytes);
  }

  TransferReport put() {
    return run<TransferReport>([this](Client& client) {
      return upload(client, folder + "/there", GcsAddress{"data", "a/b c"}, rules, Progress());
    });
  }
  TransferReport get() {
    return run<TransferReport>([this](Client& client) {
      return download(client, GcsAddress{"data", "a/b c"}, folder + "/back", rules, Progress());
    });
  }

  std::string bytes;
  TransferRules rules;
};

TEST_F(GcsTransferTest, AFileComesBackAsItWas) {
  const TransferReport up = put();
  EXPECT_EQ(up.bytes, bytes.size());
  EXPECT_EQ(up.verified, "CRC32C");
  const TransferReport down = get();
  EXPECT_EQ(down.verified, "CRC32C");
  EXPECT_EQ(files.read(folder + "/back"), bytes);
  files.write_atomically(folder + "/there", "");
  EXPECT_EQ(put().bytes, 0u);
  get();
  EXPECT_EQ(files.read(folder + "/back"), "");
}

TEST_F(GcsTransferTest, WhatGoogleDidNotKeepIsSentAgain) {
  set({{"upload_short", 2}});
  put();
  get();
  EXPECT_EQ(files.read(folder + "/back"), bytes);
}

TEST_F(GcsTransferTest, ABrokenUploadGoesOnWhereItEnded) {
  // From its fourth piece on, nobody answers well.
  int pieces = 0;
  const auto broken = [&](Client& client) {
    Progress progress = [&pieces](uint64_t, uint64_t) {
      if (++pieces == 3) throw Error(ErrorCode::kUnavailable, "the line is cut");
    };
    return upload(client, folder + "/there", GcsAddress{"data", "a/b c"}, rules, std::move(progress));
  };
  EXPECT_EQ(code_of([&] { run<TransferReport>(broken); }), ErrorCode::kUnavailable);
  EXPECT_EQ(put().resumed, 3u * rules.part_size);
  get();
  EXPECT_EQ(files.read(folder + "/back"), bytes);
}

// gzip of "hello, hello, hello" in twenty lines.
constexpr std::string_view kPacked(
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xcb\x48\xcd\xc9\xc9\xd7\x51\xc8\x40\xa2\xb8\x32\x46\xc5\x06\x4c\x0c\x00"
    "\x21\xd3\xb5\xbe\x90\x01\x00\x00",
    36);

TEST_F(GcsTransferTest, WhatIsKeptCompressedComesAsItIsKept) {
  run<HttpResponse>([](Client& client) {
    Call call;
    call.service = kStorage;
    call.operation = "objects.insert";
    call.method = "POST";
    call.path = "/upload/storage/v1/b/data/o";
    call.query = {{"uploadType", "media"}, {"name", "a/b c"}, {"contentEncoding", "gzip"}};
    std::map<std::string, std::string> headers{{"content-type", "text/plain"}};
    return client.send(std::move(call), std::move(headers), std::string(kPacked));
  });
  EXPECT_EQ(get().verified, "CRC32C");
  EXPECT_EQ(files.read(folder + "/back"), kPacked);
}

TEST_F(GcsTransferTest, AnEmulatorAsksNobodyWhoTheyAre) {
  set({{"habits", {"anonymous"}}});
  settings.env.erase("RUBATO_GCP_ENDPOINT");
  settings.env.erase("GOOGLE_APPLICATION_CREDENTIALS");
  settings.env["STORAGE_EMULATOR_HOST"] = url;
  put();
  get();
  EXPECT_EQ(files.read(folder + "/back"), bytes);
}

TEST_F(GcsTransferTest, WhatIsNotThereIsSaid) {
  EXPECT_EQ(code_of([&] { get(); }), ErrorCode::kNotFound);
  EXPECT_FALSE(files.exists(folder + "/back"));
}

}  // namespace
}  // namespace rubato::gcp
