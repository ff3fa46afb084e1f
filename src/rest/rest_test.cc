#include <gtest/gtest.h>

#include "rest/base64.h"
#include "rest/hmac.h"
#include "rest/http_date.h"
#include "rest/ini.h"
#include "rest/md5.h"
#include "rest/url.h"
#include "rest/xml.h"
#include "core/error.h"

namespace rubato::rest {
namespace {

TEST(Hmac, GivesTheVectorsOfRfc4231) {
  EXPECT_EQ(HmacKey(std::string(20, '\x0b')).sign_hex("Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(HmacKey("Jefe").sign_hex("what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(HmacKey(std::string(131, '\xaa')).sign_hex("Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Md5, GivesTheDigestsOfRfc1321) {
  const auto hex = [](std::string_view text) {
    Md5 hash;
    for (const char c : text) hash.update({&c, 1});  // in the smallest pieces
    return hash.hex();
  };
  EXPECT_EQ(hex(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(hex("message digest"), "f96b697d7cb7938d525a2f31aaf161d0");
  EXPECT_EQ(hex("12345678901234567890123456789012345678901234567890123456789012345678901234567890"),
            "57edf4a22be3c955ac49da2e2107b67a");
}

TEST(Base64, GoesThereAndBack) {
  for (const auto& [plain, text] : {std::pair<std::string, std::string>{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="},
                                    {"foo", "Zm9v"}, {"foobar", "Zm9vYmFy"}}) {
    EXPECT_EQ(base64(plain), text);
    EXPECT_EQ(unbase64(text), plain);
  }
  for (const char* bad : {"Zg", "Z===", "Zg==Zg==", "Zm9*"}) EXPECT_EQ(unbase64(bad), std::nullopt) << bad;
}

TEST(HttpDate, IsReadOrRefused) {
  EXPECT_EQ(parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT"), WallTime(784111777s));
  for (const char* bad : {"", "Sun, 06 Nov 1994 08:49:37", "Sun, 31 Feb 1994 08:49:37 GMT",
                          "Sun, 06 Foo 1994 08:49:37 GMT", "Sun, 06 Nov 1994 28:49:37 GMT"}) {
    EXPECT_EQ(parse_http_date(bad), std::nullopt) << bad;
  }
}

TEST(Url, EncodesAllButUnreserved) {
  EXPECT_EQ(percent_encode("aZ09-._~ /?é"), "aZ09-._~%20%2F%3F%C3%A9");
  EXPECT_EQ(percent_encode("/a b", Slash::kKept), "/a%20b");
  EXPECT_EQ(percent_decode("a%20b%2"), "a b%2");
}

TEST(Url, IsTakenApart) {
  const Url url = parse_url("http://user:p%40ss@[::1]:5000/base/?x=1", "AWS_ENDPOINT_URL");
  EXPECT_FALSE(url.https);
  EXPECT_EQ(url.endpoint, (Endpoint{"::1", 5000}));
  EXPECT_EQ(url.user, "user:p@ss");
  EXPECT_EQ(url.path, "/base/");
  EXPECT_EQ(url.query, "x=1");
  EXPECT_EQ(url.host(), "[::1]:5000");
  EXPECT_EQ(parse_url("https://s3.amazonaws.com", "x").host(), "s3.amazonaws.com");
  for (const char* bad : {"", "s3.amazonaws.com", "ftp://x", "http://", "http://a b", "http://x:99999"}) {
    EXPECT_THROW(parse_url(bad, "x"), Error) << bad;
  }
}

TEST(Xml, ReadsWhatCloudsAnswer) {
  const XmlResult parsed = parse_xml(
      "<?xml version=\"1.0\"?><a:R xmlns:a=\"urn:x\"><set><item><k>1 &amp; 2</k></item><item/></set><e> x </e></a:R>");
  ASSERT_EQ(parsed.problem, "");
  EXPECT_EQ(parsed.root.name, "R");
  ASSERT_EQ(parsed.root.list("set", "item").size(), 2u);
  EXPECT_EQ(parsed.root.list("set", "item")[0]->text_at("k"), "1 & 2");
  EXPECT_EQ(parsed.root.text_at("e"), " x ");
  EXPECT_EQ(parsed.root.text_at("not/there"), "");
}

TEST(Xml, RefusesWhatIsNotWellFormedOrTooMuch) {
  for (const char* bad : {"", "<a>", "<a></b>", "<a/><b/>", "plain"}) EXPECT_NE(parse_xml(bad).problem, "") << bad;
  const std::string bomb = "<!DOCTYPE a [<!ENTITY x \"xxxxxxxx\"><!ENTITY y \"&x;&x;\">]><a>&y;</a>";
  EXPECT_NE(parse_xml(bomb).problem.find("document type"), std::string::npos);
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "<a>";
  EXPECT_NE(parse_xml(deep).problem.find("nested too deeply"), std::string::npos);
  XmlLimits few;
  few.elements_max = 2;
  EXPECT_NE(parse_xml("<a><b/><c/></a>", few).problem.find("too many elements"), std::string::npos);
}

TEST(Ini, ReadsSectionsKeysAndNestedKeys) {
  const IniFile file(
      "\xef\xbb\xbf# comment\n[default]\nregion = eu-west-1\n\n[profile dev]\nRegion=us-east-1\nservices = local\n"
      "s3 =\n  max_concurrent_requests = 20\n[services local]\nec2 = \n  endpoint_url = http://h:1\ns3 =\n"
      "  endpoint_url = http://h:2\n",
      "/c");
  EXPECT_EQ(file.value("default", "region"), "eu-west-1");
  EXPECT_EQ(file.value("profile dev", "region"), "us-east-1");
  EXPECT_EQ(file.value("profile dev", "s3.max_concurrent_requests"), "20");
  EXPECT_EQ(file.value("services local", "ec2.endpoint_url"), "http://h:1");
  EXPECT_EQ(file.value("services local", "s3.endpoint_url"), "http://h:2");
  EXPECT_EQ(file.value("profile dev", "nothing"), std::nullopt);
  EXPECT_EQ(file.find("profile dev")->at("region").line, 6);
}

TEST(Ini, SaysWhereItIsWrong) {
  for (const auto& [text, where] : {std::pair<std::string, std::string>{"[a\n", "/c:1"}, {"x = 1\n", "/c:1"},
                                    {"[a]\nwhat\n", "/c:2"}, {"[a]\n = 1\n", "/c:2"}}) {
    try {
      IniFile(text, "/c");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.where, where);
      EXPECT_EQ(error.code, ErrorCode::kUsage);
    }
  }
}

}  // namespace
}  // namespace rubato::rest
