#include "provider/node_scripts.h"

#include <fmt/format.h>

#include "core/text.h"

namespace rubato::provider {

namespace {

// setup.pid holds a process group and the start time of its leader: a number that was given to another process since
// is not mistaken for it. sshd gives each command a session, so its shell leads a group.
constexpr std::string_view kEndOldSetup = R"sh(
started() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
if read -r old since <"$d/setup.pid" 2>/dev/null && [ -n "$since" ] && [ "$(started "$old")" = "$since" ]; then
  kill -KILL -- "-$old" 2>/dev/null
fi
)sh";

// Whether a scope of the user's systemd can be made that stays when nobody is logged in.
constexpr std::string_view kStartAgent = R"sh(
if [ -z "$XDG_RUNTIME_DIR" ] && [ -d "/run/user/$(id -u)" ]; then export XDG_RUNTIME_DIR="/run/user/$(id -u)"; fi
lingers() { [ "$(loginctl show-user "$(id -un)" --property=Linger --value 2>/dev/null)" = yes ]; }
how=daemon
if command -v systemd-run >/dev/null 2>&1 && systemctl --user show-environment >/dev/null 2>&1; then
  lingers || loginctl enable-linger >/dev/null 2>&1
  if lingers && systemd-run --user --scope --quiet --collect --unit="$unit-$$" \
      "$p" daemon start "$d" agent --dir "$d"; then how=systemd; fi
fi
if [ $how = daemon ]; then "$p" daemon start "$d" agent --dir "$d" || exit 1; fi
sleep 0.2
if ! "$p" daemon running "$d" >/dev/null; then
  echo "the agent ended as it started; its last words:" >&2; tail -n 8 "$d/daemon.log" >&2; exit 1
fi
echo "rubato-agent $was $how"
)sh";

std::string write_file_words(const std::string& name, const std::string& text) {
  return fmt::format("printf %s {} >\"$d/{}.new\" && mv -f \"$d/{}.new\" \"$d/{}\" || exit 1\n", shell_quote(text),
                     name, name, name);
}

}  // namespace

std::string look_script(const std::string& folder) {
  return fmt::format("d={}\nif read -r r <\"$d/runtime\" 2>/dev/null; then echo \"rubato-runtime $r\"; fi\n",
                     quote_path(folder));
}

std::string command_script(const std::string& folder, const std::string& command) {
  return fmt::format(
      "d={}\nmkdir -p \"$d\" && chmod 700 \"$d\" || exit 1\n{}"
      "echo \"$$ $(started $$)\" >\"$d/setup.pid\"\n"
      "unset d old since\n(eval {})\nc=$?\nrm -f {}/setup.pid\nexit $c\n",
      quote_path(folder), kEndOldSetup, shell_quote(command), quote_path(folder));
}

std::string agent_script(const std::string& folder, const std::string& program, const std::string& unit,
                         const NodeSetupSpec& spec, const std::string& agent_json) {
  std::string script = fmt::format(
      "u=$(umask)\numask 077\nd={}\np={}\nunit={}\nwas=started\nmkdir -p \"$d\" && chmod 700 \"$d\" || exit 1\n"
      "d=$(cd \"$d\" && pwd -P) || exit 1\n{}rm -f \"$d/setup.pid\"\n",
      quote_path(folder), quote_path(program), shell_quote(unit), kEndOldSetup);
  if (!spec.runtime_hash.empty()) script += write_file_words("runtime", spec.runtime_hash + "\n");
  script += fmt::format(
      "ln -sfn \"$p\" \"$d/program\"\nw={}\n"
      "if \"$p\" daemon running \"$d\" >/dev/null; then\n"
      "  if [ \"$(cat \"$d/agent.json\" 2>/dev/null)\" = \"$w\" ]; then echo 'rubato-agent running'; exit 0; fi\n"
      "  \"$p\" daemon stop \"$d\" || exit 1; was=restarted\nfi\n",
      shell_quote(std::string(trim(agent_json))));
  script += write_file_words("ca.pem", spec.identity.ca);
  script += write_file_words("node.pem", spec.identity.certificate);
  script += write_file_words("node.key", spec.identity.key);
  script += write_file_words("agent.json", agent_json);
  script += "umask \"$u\"\n";  // the workers' files are the person's business
  return script + std::string(kStartAgent);
}

std::string stop_script(const std::string& folder, Duration grace) {
  return fmt::format(
      "d={}\n[ -d \"$d\" ] || exit 0\nd=$(cd \"$d\" && pwd -P) || exit 1\n{}"
      "if [ -x \"$d/program\" ]; then \"$d/program\" daemon --grace {}s stop \"$d\" || exit 1; fi\nrm -rf \"$d\"\n",
      quote_path(folder), kEndOldSetup, to_ms(grace) / 1000);
}

std::string running_script(const std::string& folder) {
  return fmt::format("d={}\n[ -x \"$d/program\" ] && \"$d/program\" daemon running \"$d\" >/dev/null\n",
                     quote_path(folder));
}

}  // namespace rubato::provider
