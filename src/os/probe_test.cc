#include "os/probe.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "os/fd.h"

namespace rubato::os {
namespace {

using Result = EndpointProbe::Result;

TEST(Probe, LoopbackAndFreePortsWorkHere) {
  EXPECT_EQ(probe_loopback(), "");
  EXPECT_EQ(probe_free_port(), "");
  EXPECT_FALSE(resolve_name("127.0.0.1").addresses.empty());
}

TEST(Probe, AHostThatDoesNotExistIsToldApart) {
  const EndpointProbe probe = probe_endpoint("no-such-host.invalid", 29400);
  EXPECT_EQ(probe.result, Result::kNoSuchHost);
  EXPECT_FALSE(probe.error.empty());
}

TEST(Probe, AnOwnPortIsFreeOrTaken) {
  const Fd server(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(server.get(), generic, size), 0);
  ASSERT_EQ(getsockname(server.get(), generic, &size), 0);
  const uint16_t port = ntohs(address.sin_port);
  EXPECT_EQ(probe_endpoint("127.0.0.1", 0).result, Result::kPortFree);
  ASSERT_EQ(listen(server.get(), 1), 0);
  EXPECT_EQ(probe_endpoint("127.0.0.1", port).result, Result::kPortTaken);
}

TEST(Probe, TheMachineAnswersEveryQuestion) {
  ProbeRequest request;
  request.python = "/no/such/python";
  const ProbeFacts facts = probe_machine(request);
  EXPECT_FALSE(facts.hostname.empty());
  EXPECT_FALSE(facts.kernel.empty());
  EXPECT_GT(facts.year, 2000);
  EXPECT_GT(facts.open_files.soft, 0u);
  EXPECT_FALSE(facts.python.error.empty());
  EXPECT_FALSE(facts.endpoint);
}

}  // namespace
}  // namespace rubato::os
