// Against a real sshd.
#include "provider/ssh_runner.h"

#include "core/text.h"
#include "provider/local_runner.h"
#include "provider/ssh_testing.h"

namespace rubato::provider {
namespace {

TEST_F(SshTest, RunsAScriptWithItsEnvironmentAndInput) {
  SshRunner ssh = runner();
  Command command = script("printf '%s|' \"$A\" 'back\\slash' \"two\nlines\"; cat; echo err >&2; exit 7");
  command.env = {{"A", "it's $HOME"}};
  command.input = "input\nwith lines";
  std::vector<std::string> lines;
  command.on_line = [&](std::string_view line) { lines.emplace_back(line); };
  const CommandResult result = await(ssh.run(command));
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.out, "it's $HOME|back\\slash|two\nlines|input\nwith lines");
  std::ranges::sort(lines);  // two streams
  EXPECT_EQ(join(lines, ","), "err,it's $HOME|back\\slash|two,lines|input,with lines");
}

TEST_F(SshTest, QuotesArguments) {
  SshRunner ssh = runner();
  Command command;
  command.argv = {"printf", "[%s]", "a b", "$(id)", "'", ""};
  EXPECT_EQ(await(ssh.run(command)).out, "[a b][$(id)]['][]");
}

TEST_F(SshTest, TellsItsOwnFailureFromTheCommands) {
  SshRunner ssh = runner();
  EXPECT_EQ(await(ssh.run(script("exit 255"))).exit_code, 255);
  EXPECT_EQ(await(ssh.run(script("sh -c 'kill -9 $$'"))).exit_code, 137);
}

TEST_F(SshTest, ALoginShellHasTheProfileAndKeepsTheInput) {
  folder.write("home/.bash_profile", "export FROM_PROFILE=yes; read -r stolen; . ~/.bashrc\n");
  folder.write("home/.bashrc", "case $- in *i*) ;; *) return;; esac\nexport FROM_BASHRC=yes\n");
  SshRunner ssh = runner();
  Command command = script("echo $FROM_PROFILE $FROM_BASHRC; cat");
  command.login = true;
  command.input = "kept";
  const CommandResult result = await(ssh.run(command));
  EXPECT_EQ(result.out, "yes yes\nkept");
  EXPECT_EQ(join(result.last_lines, "|"), "yes yes|kept") << "bash's words about its missing terminal are left out";
}

TEST_F(SshTest, OneConnectionServesManyCalls) {
  SshRunner ssh = runner();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(await(ssh.run(script("echo hi"))).out, "hi\n");
  const std::string log = os::read_text(folder / "sshd.log");
  size_t logins = 0;
  for (size_t at = 0; (at = log.find("Accepted publickey", at)) != std::string::npos; ++at) ++logins;
  EXPECT_EQ(logins, 1u) << log;
  struct stat facts {};
  ASSERT_EQ(::stat(control_path(target()).c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777u, 0600u);
}

TEST_F(SshTest, ARefusedLoginNamesTheKey) {
  make_key("other");
  SshTarget wrong = target();
  wrong.key_file = folder / "other";
  SshRunner ssh(world, settings(), wrong);
  const Outcome<CommandResult> outcome = settle(ssh.run(script("true")));
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ErrorCode::kUsage);
  EXPECT_NE(outcome.error->hint.find(wrong.key_file), std::string::npos) << outcome.error->hint;
  wrong.key_file = folder / "nothing";
  SshRunner missing(world, settings(), wrong);
  EXPECT_NE(settle(missing.run(script("true"))).error->message.find("is not there"), std::string::npos);
}

TEST_F(SshTest, AChangedHostKeyIsRefusedAndHowToForgetItWorks) {
  SshRunner ssh = runner();
  EXPECT_TRUE(await(ssh.run(script("true"))).ok());
  finish_call(ssh.disconnect());
  stop_sshd();
  make_key("host_key");
  start_sshd("");
  const Outcome<CommandResult> outcome = settle(ssh.run(script("true")));
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ErrorCode::kUsage);
  EXPECT_NE(outcome.error->message.find("has changed"), std::string::npos) << outcome.error->message;
  const size_t colon = outcome.error->hint.find("ssh-keygen");
  ASSERT_NE(colon, std::string::npos);
  EXPECT_TRUE(run(shell(outcome.error->hint.substr(colon))).status.ok()) << outcome.error->hint;
  EXPECT_TRUE(await(ssh.run(script("true"))).ok());
}

TEST_F(SshTest, NobodyThereIsUnavailable) {
  stop_sshd();
  SshRunner ssh = runner();
  const Outcome<CommandResult> outcome = settle(ssh.run(script("true")));
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ErrorCode::kUnavailable);
  EXPECT_NE(outcome.error->message.find("refused the connection"), std::string::npos) << outcome.error->message;
}

TEST_F(SshTest, ACommandHasADeadline) {
  SshRunner ssh = runner();
  Command command = script("sleep 1000");
  command.timeout = 1s;
  const Outcome<CommandResult> outcome = settle(ssh.run(command));
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ErrorCode::kUnavailable);
  EXPECT_NE(outcome.error->message.find("`sleep 1000` on"), std::string::npos) << outcome.error->message;
}

TEST_F(SshTest, JumpsOverAHost) {
  SshTarget behind = target();
  behind.proxy_jump = fmt::format("127.0.0.1:{}", port);
  behind.control_folder.clear();
  SshRunner ssh(world, settings(), behind);
  EXPECT_EQ(await(ssh.run(script("echo over"))).out, "over\n");
}

TEST_F(SshTest, SecretsAreNeitherInArgumentsNorLeftBehind) {
  SshRunner ssh = runner();
  Command command = script("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; cat >/dev/null");
  command.env = {{"TOKEN", "secret-in-env"}};
  command.input = "secret-in-input";
  command.out_max = size_t{8} << 20;
  const CommandResult result = await(ssh.run(command));
  EXPECT_EQ(result.out.find("secret-in"), std::string::npos);
  EXPECT_NE(result.out.find("sshd"), std::string::npos) << "the search does find processes";
  EXPECT_TRUE(std::filesystem::is_empty(folder / "scratch"));
}

TEST_F(RealWorldTest, ThisMachineDoesTheSame) {
  LocalRunner here(world, settings());
  Command command = script("printf '%s|' \"$A\"; cat; exit 255");
  command.env = {{"A", "it's"}};
  command.input = "in";
  const CommandResult result = await(here.run(command));
  EXPECT_EQ(result.out, "it's|in");
  EXPECT_EQ(result.exit_code, 255);
  EXPECT_TRUE(result.last_lines == std::vector<std::string>{"it's|in"});
}

TEST_F(RealWorldTest, WhatHasNoLineEndsIsBounded) {
  LocalRunner here(world, settings());
  Command command = script("head -c 5000000 /dev/zero | tr '\\0' x");
  command.out_max = 1000;
  const CommandResult result = await(here.run(command));
  EXPECT_EQ(result.out.size(), 1000u);
  EXPECT_TRUE(result.out_cut);
  for (const std::string& line : result.last_lines) EXPECT_LE(line.size(), kLineMax);
}

TEST_F(RealWorldTest, ControlSocketsOfADeepFolderGoElsewhere) {
  const std::string deep = folder / std::string(120, 'd');
  const std::string control = control_folder(files, deep);
  EXPECT_LT(control.size(), 60u);
  EXPECT_EQ(control_folder(files, deep), control) << "and are found again";
  struct stat facts {};
  ASSERT_EQ(::stat(control.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777u, 0700u);
  std::filesystem::remove_all(control);
}

}  // namespace
}  // namespace rubato::provider
