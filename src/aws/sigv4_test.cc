#include "aws/sigv4.h"

#include <gtest/gtest.h>

#include "core/sha256.h"

namespace rubato::aws {
namespace {

// The account and the time of AWS's published test suite ("aws4_testsuite").
const Credentials kSuite{"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "", std::nullopt};
const SigningScope kService{"us-east-1", "service"};
constexpr std::string_view kTime = "20150830T123600Z";

SignedParts suite_parts() {
  SignedParts parts;
  parts.headers = {{"Host", "example.amazonaws.com"}, {"X-Amz-Date", std::string(kTime)}};
  parts.payload_hash = sha256_hex("");
  return parts;
}

std::string suite_signature(const SignedParts& parts, const SigningScope& scope = kService) {
  Signer signer;
  const std::string header = signer.authorization(parts, scope, kSuite, kTime);
  return header.substr(header.find("Signature=") + 10);
}

TEST(SigV4, WritesTheHeaderOfTheSuitesFirstRequest) {
  Signer signer;
  EXPECT_EQ(signer.authorization(suite_parts(), kService, kSuite, kTime),
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
            "SignedHeaders=host;x-amz-date, "
            "Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
}

TEST(SigV4, SortsQueriesByNameAndValue) {
  const std::string letters = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const std::vector<std::pair<rest::Query, std::string>> shapes{
      {{{"Param1", "value1"}}, "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"},
      {{{"Param2", "value2"}, {"Param1", "value1"}},
       "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
      {{{"Param1", "value2"}, {"Param1", "Value1"}},
       "eedbc4e291e521cf13422ffca22be7d2eb8146eecf653089df300a15b2382bd1"},
      {{{"Param1", "value2"}, {"Param1", "value1"}},
       "5772eed61e12b33fae39ee5e7012498b51d56abc0abb7c60486157bd471c4694"},
      {{{letters, letters}}, "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197"},
      {{{"ሴ", "bar"}}, "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"}};
  for (const auto& [query, signature] : shapes) {
    SignedParts parts = suite_parts();
    parts.query = query;
    EXPECT_EQ(suite_signature(parts), signature) << query.front().first;
  }
}

TEST(SigV4, NormalisesPathsOfAllButS3) {
  const std::string vanilla = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31";
  const std::vector<std::pair<std::string, std::string>> shapes{
      {"/example/..", vanilla},
      {"/example1/example2/../..", vanilla},
      {"//", vanilla},
      {"/./", vanilla},
      {"//example//", "9a624bd73a37c9a373b5312afbebe7a714a789de108f0bdfe846570885f57e84"},
      {"/./example", "ef75d96142cf21edca26f06005da7988e4f8dc83a165a80865db7089db637ec5"},
      {"/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
       "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"}};
  for (const auto& [path, signature] : shapes) {
    SignedParts parts = suite_parts();
    parts.path = path;
    EXPECT_EQ(suite_signature(parts), signature) << path;
  }
}

TEST(SigV4, EncodesPathsTwiceButThoseOfS3Once) {
  SignedParts parts = suite_parts();
  parts.path = "/a b//ሴ";
  EXPECT_TRUE(canonical_request(parts, kService).starts_with("GET\n/a%2520b/%25E1%2588%25B4\n"));
  EXPECT_TRUE(canonical_request(parts, {"us-east-1", "s3"}).starts_with("GET\n/a%20b//%E1%88%B4\n"));
  EXPECT_EQ(wire_path(parts.path), "/a%20b//%E1%88%B4");
}

TEST(SigV4, JoinsAndTrimsHeaders) {
  const std::vector<std::pair<Headers, std::string>> shapes{
      {{{"My-Header1", "value2"}, {"My-Header1", "value2"}, {"My-Header1", "value1"}},
       "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea"},
      {{{"My-Header1", "value4"}, {"My-Header1", "value1"}, {"My-Header1", "value3"}, {"My-Header1", "value2"}},
       "08c7e5a9acfcfeb3ab6b2185e75ce8b1deb5e634ec47601a50643f830c755c01"},
      {{{"My-Header1", " value1"}, {"My-Header2", " \"a   b   c\""}},
       "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
      {{{"My-Header1", "value1\n  value2\n     value3"}},
       "cfd34249e4b1c8d6b91ef74165d41a32e5fab3306300901bb65a51a73575eefd"}};
  for (const auto& [headers, signature] : shapes) {
    SignedParts parts = suite_parts();
    parts.headers.insert(parts.headers.begin(), headers.begin(), headers.end());
    EXPECT_EQ(suite_signature(parts), signature) << headers.front().second;
  }
  SignedParts empty = suite_parts();
  empty.headers.emplace_back("X-Empty", "");
  EXPECT_NE(canonical_request(empty, kService).find("\nx-empty:\n"), std::string::npos);
}

TEST(SigV4, SignsBodiesAndTokens) {
  SignedParts post = suite_parts();
  post.method = "POST";
  EXPECT_EQ(suite_signature(post), "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");
  SignedParts form = post;
  form.headers.emplace_back("Content-Type", "application/x-www-form-urlencoded");
  form.payload_hash = sha256_hex("Param1=value1");
  EXPECT_EQ(suite_signature(form), "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a");
  SignedParts token = post;  // the suite's post-sts-header-before
  token.headers.emplace_back(
      "X-Amz-Security-Token",
      "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRq"
      "TflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75Y"
      "U9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9K"
      "SYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==");
  EXPECT_EQ(suite_signature(token), "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead");
}

// The examples of AWS's S3 reference, "Authenticating Requests".
const Credentials kS3Example{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "", std::nullopt};
const SigningScope kS3Scope{"us-east-1", "s3"};

TEST(SigV4, GivesTheSignaturesOfS3sReference) {
  Signer signer;
  SignedParts get;
  get.path = "/test.txt";
  get.payload_hash = sha256_hex("");
  get.headers = {{"host", "examplebucket.s3.amazonaws.com"},
                 {"range", "bytes=0-9"},
                 {"x-amz-content-sha256", get.payload_hash},
                 {"x-amz-date", "20130524T000000Z"}};
  EXPECT_TRUE(signer.authorization(get, kS3Scope, kS3Example, "20130524T000000Z")
                  .ends_with("f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"));
  SignedParts put;
  put.method = "PUT";
  put.path = "/test$file.text";
  put.payload_hash = sha256_hex("Welcome to Amazon S3.");
  put.headers = {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
                 {"host", "examplebucket.s3.amazonaws.com"},
                 {"x-amz-content-sha256", put.payload_hash},
                 {"x-amz-date", "20130524T000000Z"},
                 {"x-amz-storage-class", "REDUCED_REDUNDANCY"}};
  EXPECT_TRUE(signer.authorization(put, kS3Scope, kS3Example, "20130524T000000Z")
                  .ends_with("98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"));
}

TEST(SigV4, PresignsAsS3sReferenceDoes) {
  Signer signer;
  SignedParts get;
  get.path = "/test.txt";
  get.headers = {{"host", "examplebucket.s3.amazonaws.com"}};
  const WallTime now(1369353600s);  // 2013-05-24
  const rest::Query query = signer.presign(get, kS3Scope, kS3Example, now, 86400s);
  EXPECT_EQ(query.back().first, "X-Amz-Signature");
  EXPECT_EQ(query.back().second, "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404");
}

TEST(Signer, DerivesANewKeyForAnotherDayRegionOrSecret) {
  Signer kept;
  const std::string first = kept.authorization(suite_parts(), kService, kSuite, kTime);
  const std::vector<std::tuple<SigningScope, Credentials, std::string>> others{
      {kService, kSuite, "20150831T000000Z"}, {{"eu-west-1", "service"}, kSuite, std::string(kTime)},
      {kService, {"AKIDEXAMPLE", "other", "", std::nullopt}, std::string(kTime)}};
  for (const auto& [scope, credentials, time] : others) {
    Signer fresh;
    EXPECT_EQ(kept.authorization(suite_parts(), scope, credentials, time),
              fresh.authorization(suite_parts(), scope, credentials, time));
  }
  EXPECT_EQ(kept.authorization(suite_parts(), kService, kSuite, kTime), first);
}

TEST(AmzTimestamp, IsUtcInBasicForm) { EXPECT_EQ(amz_timestamp(WallTime(1440938160s)), kTime); }

}  // namespace
}  // namespace rubato::aws
