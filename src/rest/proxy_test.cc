#include "rest/proxy.h"

#include <gtest/gtest.h>

namespace rubato::rest {
namespace {

std::string proxy_of(const std::string& url, const Environment& env) {
  const std::optional<HttpProxy> found = proxy_for(parse_url(url, "test"), env);
  if (!found) return "";
  return to_string(found->endpoint) + (found->authorization.empty() ? "" : " " + found->authorization);
}

TEST(Proxy, IsFoundAsCurlFindsIt) {
  const std::string ec2 = "https://ec2.eu-west-1.amazonaws.com";
  EXPECT_EQ(proxy_of(ec2, {}), "");
  EXPECT_EQ(proxy_of(ec2, {{"HTTPS_PROXY", "http://proxy:3128"}}), "proxy:3128");
  EXPECT_EQ(proxy_of(ec2, {{"HTTPS_PROXY", "proxy:3128"}, {"https_proxy", "http://mine:1"}}), "mine:1");
  EXPECT_EQ(proxy_of(ec2, {{"HTTP_PROXY", "http://proxy:3128"}}), "") << "that is for http://";
  EXPECT_EQ(proxy_of("http://store:9000", {{"http_proxy", "http://proxy:3128/"}}), "proxy:3128");
  EXPECT_EQ(proxy_of(ec2, {{"ALL_PROXY", "http://all"}}), "all:80");
  EXPECT_EQ(proxy_of(ec2, {{"HTTPS_PROXY", "http://ann:p%40ss@proxy:3128"}}), "proxy:3128 Basic YW5uOnBAc3M=");
}

TEST(Proxy, SomeAreAskedDirectly) {
  const auto direct = [](const std::string& host, const std::string& no_proxy) {
    return proxy_of("https://" + host, {{"https_proxy", "http://proxy:1"}, {"NO_PROXY", no_proxy}}).empty();
  };
  EXPECT_FALSE(direct("a.corp", ""));
  EXPECT_TRUE(direct("a.corp", "*"));
  for (const char* entry : {"corp", ".corp", "*.corp", "x, .CORP ,y", "a.corp:443"}) {
    EXPECT_TRUE(direct("a.corp", entry)) << entry;
  }
  EXPECT_FALSE(direct("a.corp", "a.corp:8443"));
  EXPECT_FALSE(direct("acorp", ".corp"));
  EXPECT_TRUE(direct("10.1.2.3", "10.0.0.0/8"));
  EXPECT_FALSE(direct("11.1.2.3", "10.0.0.0/8"));
  EXPECT_TRUE(direct("10.1.2.3", "10.1.2.3"));
  EXPECT_FALSE(direct("10.1.2.3", "10.0.0.0/junk"));
  EXPECT_TRUE(direct("10.9.2.3", "10.0.0.0/0"));
  EXPECT_TRUE(direct("[fd00::7]", "[fd00::7]:443"));
  EXPECT_TRUE(direct("[fd00::7]", "fd00::7"));
  for (const char* here : {"localhost", "127.0.0.1", "127.9.9.9", "[::1]", "x.localhost"}) {
    EXPECT_TRUE(direct(here, "")) << here;
  }
}

TEST(Proxy, WhatCannotBeUsedIsRefusedWithoutItsPassword) {
  for (const char* text : {"socks5://u:secret@proxy:1", "https://u:secret@proxy:1", "http://u:secret@proxy:nowhere"}) {
    try {
      proxy_of("https://ec2.aws", {{"HTTPS_PROXY", text}});
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code, ErrorCode::kUsage);
      EXPECT_NE(error.message.find("HTTPS_PROXY"), std::string::npos) << error.message;
      EXPECT_EQ((error.message + error.hint + error.where).find("secret"), std::string::npos) << error.message;
    }
  }
}

}  // namespace
}  // namespace rubato::rest
