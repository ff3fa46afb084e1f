#include "provider/ssh_target.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/text.h"
#include "provider/shell_stream.h"

namespace rubato::provider {
namespace {

SshTarget some_target() {
  SshTarget target;
  target.host = "10.0.0.7";
  target.user = "ubuntu";
  target.port = 22;
  target.known_hosts = "/c/known_hosts";
  target.control_folder = "/c/ssh";
  return target;
}

bool has(const std::vector<std::string>& argv, const std::string& word) { return std::ranges::count(argv, word) > 0; }

TEST(SshArgv, AsksNothingAndHoldsAHostToItsFirstKey) {
  const std::vector<std::string> argv = ssh_argv(some_target(), SshOptions{});
  EXPECT_TRUE(has(argv, "BatchMode=yes"));
  EXPECT_TRUE(has(argv, "StrictHostKeyChecking=accept-new"));
  EXPECT_TRUE(has(argv, "UserKnownHostsFile=/c/known_hosts"));
  EXPECT_TRUE(has(argv, "ControlMaster=auto"));
  EXPECT_TRUE(has(argv, "ServerAliveInterval=5"));
  EXPECT_TRUE(has(argv, "ConnectTimeout=10"));
  EXPECT_FALSE(has(argv, "IdentitiesOnly=yes")) << "without a key, the agent's keys are welcome";
  EXPECT_EQ(argv.back(), "10.0.0.7");
  EXPECT_EQ(argv[argv.size() - 2], "--");
}

TEST(SshArgv, UsesOnlyTheKeyThatIsGiven) {
  SshTarget target = some_target();
  target.key_file = "/home/me/my keys/100%.pem";
  const std::vector<std::string> argv = ssh_argv(target, SshOptions{});
  EXPECT_TRUE(has(argv, "IdentityFile=\"/home/me/my keys/100%%.pem\""));
  EXPECT_TRUE(has(argv, "IdentitiesOnly=yes"));
}

TEST(SshArgv, ForwardsAndTerminals) {
  SshOptions options;
  options.tty = true;
  options.command = "exec bash -l";
  SshForward port, socket;
  port.listen = "8265";
  port.to = "127.0.0.1:8265";
  socket.listen = "/c/api.sock";
  socket.to = "127.0.0.1:7000";
  options.forwards = {port, socket};
  const std::string line = shell_join(ssh_argv(some_target(), options));
  EXPECT_NE(line.find("-L 8265:127.0.0.1:8265 -L /c/api.sock:127.0.0.1:7000 -tt -- 10.0.0.7 'exec bash -l'"),
            std::string::npos)
      << line;
  EXPECT_NE(line.find("ExitOnForwardFailure=yes"), std::string::npos);
  options.shell = false;
  options.command.clear();
  EXPECT_TRUE(has(ssh_argv(some_target(), options), "-N"));
}

TEST(SshArgv, RefusesAHostThatIsAnOption) {
  SshTarget target = some_target();
  target.host = "-oProxyCommand=reboot";
  EXPECT_THROW(ssh_argv(target, SshOptions{}), Error);
  target.host = "a b";
  EXPECT_THROW(ssh_argv(target, SshOptions{}), Error);
  target.host = "a";
  target.user = "-x";
  EXPECT_THROW(ssh_argv(target, SshOptions{}), Error);
}

TEST(SshArgv, AJumpHostIsHeldToTheSameRules) {
  SshTarget target = some_target();
  target.proxy_jump = "admin@gate:2222";
  const std::vector<std::string> argv = ssh_argv(target, SshOptions{});
  const auto proxy = std::ranges::find_if(argv, [](const auto& word) { return word.starts_with("ProxyCommand="); });
  ASSERT_NE(proxy, argv.end());
  EXPECT_NE(proxy->find("BatchMode=yes"), std::string::npos);
  EXPECT_NE(proxy->find("UserKnownHostsFile=/c/known_hosts"), std::string::npos);
  EXPECT_TRUE(proxy->ends_with("-l admin -p 2222 -W '[%h]:%p' -- gate")) << *proxy;
  target.proxy_jump = "a,b";
  const std::vector<std::string> two = ssh_argv(target, SshOptions{});
  const auto chain = std::ranges::find_if(two, [](const auto& word) { return word.starts_with("ProxyCommand="); });
  EXPECT_TRUE(chain->ends_with("-J a -W '[%h]:%p' -- b")) << *chain;
}

TEST(SshArgv, TheHostsOwnUserAndPortWin) {
  AuthConfig auth;
  auth.ssh_user = "ubuntu";
  auth.ssh_port = 2022;
  HostAddress host;
  host.host = "h";
  EXPECT_EQ(to_string(ssh_target(host, auth)), "ubuntu@h:2022");
  host.user = "root";
  host.port = 22;
  EXPECT_EQ(to_string(ssh_target(host, auth)), "root@h");
}

TEST(ControlPath, IsShortAndDiffersByWhoIsReached) {
  const SshTarget one = some_target();
  SshTarget other = some_target();
  other.user = "root";
  EXPECT_NE(control_path(one), control_path(other));
  EXPECT_EQ(control_path(one).size(), std::string("/c/ssh/").size() + 16);
  other.control_folder.clear();
  EXPECT_EQ(control_path(other), "");
}

TEST(RsyncShell, DoublesQuotesAsRsyncReadsThem) {
  SshTarget target = some_target();
  target.proxy_command = "nc -X 5 'my proxy' %h %p";
  EXPECT_NE(ssh_command_for_rsync(target, 10s).find("'ProxyCommand=nc -X 5 ''my proxy'' %h %p'"), std::string::npos);
}

struct SaidAndMeant {
  const char* said;
  ErrorCode code;
  const char* message;
  const char* hint;
};

// The words are those of OpenSSH 9.2.
TEST(ExplainSsh, KnowsTheWordsOfSsh) {
  const SaidAndMeant cases[] = {
      {"ssh: Could not resolve hostname nohost: Name or service not known\r\n", ErrorCode::kUnavailable,
       "cannot be resolved", "getent hosts 10.0.0.7"},
      {"ssh: connect to host 10.0.0.7 port 22: Connection refused\r\n", ErrorCode::kUnavailable,
       "refused the connection", "is sshd running there, and on port 22?"},
      {"ssh: connect to host 10.0.0.7 port 22: Connection timed out\r\n", ErrorCode::kUnavailable, "does not answer",
       "firewall"},
      {"ssh: connect to host 10.0.0.7 port 22: No route to host\r\n", ErrorCode::kUnavailable, "no way to", "firewall"},
      {"@@@@@\n@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.\r\n",
       ErrorCode::kUsage, "host key of ubuntu@10.0.0.7 has changed", "ssh-keygen -R 10.0.0.7 -f /c/known_hosts"},
      {"ubuntu@10.0.0.7: Permission denied (publickey).\r\n", ErrorCode::kUsage, "refused the login",
       "the keys of your agent and ~/.ssh were tried; it must be in ~/.ssh/authorized_keys of user 'ubuntu'"},
      {"kex_exchange_identification: Connection closed by remote host\r\n", ErrorCode::kUnavailable,
       "ended the connection before the login", "MaxStartups"},
      {"Timeout, server 10.0.0.7 not responding.\r\n", ErrorCode::kUnavailable, "was lost", "repeated"},
      {"mux_client_request_session: read from master failed: Broken pipe\n", ErrorCode::kUnavailable, "was lost",
       "repeated"},
      {"", ErrorCode::kUnavailable, "was lost", "repeated"},
      {"something new\n", ErrorCode::kUnavailable, "(ssh: something new)", "ssh ubuntu@10.0.0.7"},
      {"unix_listener: path \"/very/long\" too long for Unix domain socket\n", ErrorCode::kUsage, "control socket",
       "rm /c/ssh/"},
  };
  for (const SaidAndMeant& one : cases) {
    const Error error = explain_ssh(some_target(), one.said);
    EXPECT_EQ(error.code, one.code) << one.said;
    EXPECT_NE(error.message.find(one.message), std::string::npos) << error.message;
    EXPECT_NE(error.hint.find(one.hint), std::string::npos) << error.hint;
    EXPECT_EQ(error.where, "ubuntu@10.0.0.7");
  }
}

TEST(ExplainSsh, NamesTheKeyAndThePortThatWereTried) {
  SshTarget target = some_target();
  target.key_file = "/k/id";
  target.port = 2200;
  const Error login = explain_ssh(target, "ubuntu@10.0.0.7: Permission denied (publickey).");
  EXPECT_NE(login.hint.find("the key /k/id was tried"), std::string::npos) << login.hint;
  const Error key = explain_ssh(target, "Host key verification failed.");
  EXPECT_NE(key.hint.find("ssh-keygen -R '[10.0.0.7]:2200'"), std::string::npos) << key.hint;
}

TEST(ShellStream, AScriptIsOneLine) {
  Command command;
  command.script = "echo 'a\\n'\nfalse";
  command.env = {{"A", "it's"}};
  EXPECT_EQ(script_line(command), "export A='it'\\\\''s'\\necho 'a\\\\n'\\nfalse\n");
  command.env = {{"A B", "x"}};
  EXPECT_THROW(script_line(command), Error);
  command.env.clear();
  command.script = std::string("a\0b", 3);
  EXPECT_THROW(script_line(command), Error);
}

TEST(ShellStream, PathsKeepTheirHome) {
  EXPECT_EQ(quote_path("~/a b"), "\"$HOME\"/'a b'");
  EXPECT_EQ(quote_path("~"), "\"$HOME\"");
  EXPECT_EQ(quote_path("/a;b"), "'/a;b'");
  EXPECT_EQ(quote_path("~x/$(id)"), "'~x/$(id)'");
}

}  // namespace
}  // namespace rubato::provider
