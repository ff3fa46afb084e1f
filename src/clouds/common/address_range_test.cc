#include "clouds/common/address_range.h"

#include <gtest/gtest.h>

#include "rest/rest_testing.h"

namespace rubato::clouds {
namespace {

Task<void> find_in(World& world, SshFrom asked, std::vector<std::string>& out) {
  out = co_await find_ssh_from(world, std::move(asked));
}

TEST(SshFrom, TheOwnAddressIsAskedForThroughTheProxy) {
  rest::ScriptedWorld scripted;
  scripted.network.answer = [](const rest::SentRequest& sent) {
    EXPECT_EQ(sent.endpoint.host, "checkip.amazonaws.com");
    EXPECT_TRUE(sent.request.proxy.has_value());
    EXPECT_EQ(sent.request.proxy.value_or(HttpProxy()).endpoint.host, "proxy.corp");
    return rest::http_answer(200, "203.0.113.9\n");
  };
  SshFrom asked;
  asked.env = {{"HTTPS_PROXY", "http://proxy.corp:3128"}};
  std::vector<std::string> found;
  scripted.run([&](World& world) { return find_in(world, asked, found); });
  EXPECT_EQ(found, std::vector<std::string>{"203.0.113.9/32"});
}

std::vector<std::string> from_for_server(const std::string& server, const std::vector<std::string>& resolved) {
  rest::ScriptedWorld scripted;
  scripted.network.answer = [](const rest::SentRequest&) { return rest::http_answer(200, "203.0.113.9\n"); };
  scripted.network.names = {{server, resolved}};
  scripted.network.own = {"192.168.7.2", "fd00::2"};
  SshFrom asked;
  asked.own_server = server;
  std::vector<std::string> found;
  scripted.run([&](World& world) { return find_in(world, asked, found); });
  return found;
}

// Nobody on the internet can tell how machines of a private cloud see this one.
TEST(SshFrom, APrivateServersMachinesAreReachedFromOwnAddresses) {
  const std::vector<std::string> own{"192.168.7.2/32"}, both{"127.0.0.1/32", "192.168.7.2/32"};
  EXPECT_EQ(from_for_server("localhost", {"127.0.0.1"}), both);
  for (const char* one : {"10.1.2.3", "172.16.0.1", "172.31.0.1", "192.168.0.9", "100.64.0.1", "fd00::1"}) {
    EXPECT_EQ(from_for_server("cloud.lab", {one}), own) << one;
  }
  for (const char* one : {"172.32.0.1", "8.8.8.8", "2001:db8::1", "192.0.2.1"}) {
    EXPECT_EQ(from_for_server("cloud.example", {one}), std::vector<std::string>{"203.0.113.9/32"}) << one;
  }
  EXPECT_EQ(from_for_server("", {}), std::vector<std::string>{"203.0.113.9/32"});
}

}  // namespace
}  // namespace rubato::clouds
