// The failures of OpenSSH's client, by the words of its version 7 to 9, as Errors that say what to do.
#include <fmt/format.h>

#include "core/text.h"
#include "provider/pod_address.h"
#include "provider/ssh_target.h"

namespace rubato::provider {

namespace {

struct Meaning {
  std::string_view sentence;  // in lower case; found in what ssh wrote
  ErrorCode code;
  std::string_view message;
  std::string (*fix)(const SshTarget& target);
};

std::string where_of(const SshTarget& target) { return to_string(target); }

std::string ssh_yourself(const SshTarget& target) {
  std::string line = "ssh";
  if (!target.key_file.empty()) line += " -i " + shell_quote(target.key_file);
  if (target.port != 0 && target.port != 22) line += fmt::format(" -p {}", target.port);
  if (!target.proxy_jump.empty()) line += " -J " + shell_quote(target.proxy_jump);
  if (!target.proxy_command.empty()) line += " -o " + shell_quote("ProxyCommand=" + target.proxy_command);
  return line + " " + shell_quote(target.user.empty() ? target.host : target.user + "@" + target.host);
}

std::string fix_name(const SshTarget& target) {
  return fmt::format("check the name in the cluster file, or use an address; try: getent hosts {}",
                     shell_quote(target.host));
}
std::string fix_refused(const SshTarget& target) {
  return fmt::format("is sshd running there, and on port {}? try: {}", target.port == 0 ? 22 : target.port,
                     ssh_yourself(target));
}
std::string fix_silent(const SshTarget& target) {
  return fmt::format("is the machine up, and does a firewall let port {} through from here? try: {}",
                     target.port == 0 ? 22 : target.port, ssh_yourself(target));
}
std::string fix_host_key(const SshTarget& target) {
  const std::string name =
      target.port == 0 || target.port == 22 ? target.host : fmt::format("[{}]:{}", target.host, target.port);
  return fmt::format("if the machine was set up anew, forget its old key: ssh-keygen -R {} -f {}", shell_quote(name),
                     shell_quote(target.known_hosts.empty() ? "~/.ssh/known_hosts" : target.known_hosts));
}
std::string fix_login(const SshTarget& target) {
  const std::string user = target.user.empty() ? "the user" : fmt::format("user '{}'", target.user);
  const std::string key = target.key_file.empty() ? std::string("the keys of your agent and ~/.ssh were tried")
                                                  : fmt::format("the key {} was tried", target.key_file);
  return fmt::format("{}; it must be in ~/.ssh/authorized_keys of {} there: check auth.ssh_user and ssh_private_key",
                     key, user);
}
std::string fix_key_file(const SshTarget& target) {
  if (target.key_file.empty()) return "check the key files in ~/.ssh";
  return fmt::format("check auth.ssh_private_key: {} must be a private key without a passphrase, mode 0600",
                     target.key_file);
}
std::string fix_many_keys(const SshTarget&) {
  return "your agent offers more keys than the server takes: name one with auth.ssh_private_key";
}
std::string fix_busy(const SshTarget&) {
  return "sshd there ended the connection: too many at once (MaxStartups), or this address is blocked (fail2ban); its "
         "log says which";
}
std::string fix_control(const SshTarget& target) {
  return fmt::format("remove the socket, it is made anew: rm {}", shell_quote(control_path(target)));
}
std::string fix_forward(const SshTarget&) { return "another program listens at that port here: choose another port"; }
std::string fix_lost(const SshTarget&) { return "the machine or the network between went away; the call is repeated"; }
std::string fix_proxy(const SshTarget& target) {
  return target.proxy_jump.empty() ? "try the ProxyCommand by hand"
                                   : fmt::format("try it by hand: {}", ssh_yourself(target));
}
std::string fix_install(const SshTarget&) { return "install OpenSSH's client: apt-get install openssh-client"; }

// The first that is found counts: what is more exact comes first.
constexpr ErrorCode kAgain = ErrorCode::kUnavailable;
constexpr ErrorCode kNever = ErrorCode::kUsage;
constexpr Meaning kMeanings[] = {
    {"exec: ssh: not found", kNever, "there is no ssh on this machine", fix_install},
    {"remote host identification has changed", kNever, "the host key of {} has changed", fix_host_key},
    {"host key verification failed", kNever, "the host key of {} is not the one that is known", fix_host_key},
    {"could not resolve hostname", kAgain, "the name of {} cannot be resolved", fix_name},
    {"too many authentication failures", kNever, "{} refused the login: too many keys were offered", fix_many_keys},
    {"unprotected private key file", kNever, "ssh does not use the key for {}: others can read it", fix_key_file},
    {"error in libcrypto", kNever, "the key for {} cannot be read", fix_key_file},
    {"invalid format", kNever, "the key for {} cannot be read", fix_key_file},
    {"permission denied (", kNever, "{} refused the login", fix_login},
    {"identity file", kNever, "the key for {} is not there", fix_key_file},
    {"connection refused", kAgain, "{} refused the connection", fix_refused},
    {"no route to host", kAgain, "there is no way to {}", fix_silent},
    {"network is unreachable", kAgain, "there is no way to {}", fix_silent},
    {"banner exchange", kAgain, "{} took the connection, but its sshd says nothing", fix_busy},
    {"connection timed out", kAgain, "{} does not answer", fix_silent},
    {"operation timed out", kAgain, "{} does not answer", fix_silent},
    {"kex_exchange_identification", kAgain, "{} ended the connection before the login", fix_busy},
    {"unix_listener", kNever, "the control socket for {} cannot be made", fix_control},
    {"controlpath", kNever, "the control socket for {} cannot be made", fix_control},
    {"bind: address already in use", kNever, "a port that is forwarded to {} is taken here", fix_forward},
    {"could not request local forwarding", kNever, "a port cannot be forwarded to {}", fix_forward},
    {"not responding", kAgain, "the connection to {} was lost", fix_lost},
    {"broken pipe", kAgain, "the connection to {} was lost", fix_lost},
    {"control socket", kAgain, "the control socket for {} does not work", fix_control},
    {"mux_client", kAgain, "the connection to {} was lost", fix_lost},
    {"connection reset by", kAgain, "{} ended the connection", fix_busy},
    {"connection closed by", kAgain, "{} ended the connection", fix_busy},
    {"proxy", kAgain, "the way to {} over its proxy is broken", fix_proxy},
};

// The line that holds the words, as ssh wrote it.
std::string line_with(std::string_view text, std::string_view sentence) {
  for (const std::string_view line : split(text, '\n')) {
    if (to_lower(line).find(sentence) == std::string::npos) continue;
    const std::string_view said = trim(line);
    return std::string(strip_prefix(said, "ssh: ").value_or(said));
  }
  return {};
}

}  // namespace

Error explain_ssh(const SshTarget& target, std::string_view sentence) {
  if (is_pod(target.host)) return explain_pod(target, sentence);
  const std::string lower = to_lower(sentence);
  for (const Meaning& meaning : kMeanings) {
    if (lower.find(meaning.sentence) == std::string::npos) continue;
    std::string message = fmt::format(fmt::runtime(meaning.message), to_string(target));
    const std::string said = line_with(sentence, meaning.sentence);
    if (!said.empty()) message += fmt::format(" (ssh: {})", said);
    return Error(meaning.code, message, where_of(target), meaning.fix(target));
  }
  const std::string said(trim(sentence));
  if (said.empty()) {
    return Error(kAgain, fmt::format("the connection to {} was lost", to_string(target)), where_of(target),
                 fix_lost(target));
  }
  const size_t last = said.rfind('\n');
  const std::string line = last == std::string::npos ? said : said.substr(last + 1);
  return Error(kAgain, fmt::format("ssh to {} failed (ssh: {})", to_string(target), line), where_of(target),
               "try it by hand: " + ssh_yourself(target));
}

}  // namespace rubato::provider
