#include "provider/node_scripts.h"

#include <fmt/format.h>

#include "core/text.h"

namespace rubato::provider {

namespace {

// setup.pid holds a process group and the start time of its leader: a number that was given to another process since
// is not mistaken for it. sshd gives each command a session, so its shell leads a group.
constexpr std::string_view kEndOldSetup = R"sh(
started() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
if read -r rb_old rb_since 2>/dev/null <"$rb_dir/setup.pid" && [ -n "$rb_since" ]; then
  if [ "$(started "$rb_old")" = "$rb_since" ]; then kill -9 "-$rb_old" 2>/dev/null; fi
fi
)sh";

constexpr std::string_view kLingering = R"sh(
if [ -z "$XDG_RUNTIME_DIR" ] && [ -d "/run/user/$(id -u)" ]; then export XDG_RUNTIME_DIR="/run/user/$(id -u)"; fi
lingers() { [ "$(loginctl show-user "$(id -un)" --property=Linger --value 2>/dev/null)" = yes ]; }
has_manager() { command -v systemd-run >/dev/null 2>&1 && systemctl --user show-environment >/dev/null 2>&1; }
# With the name: without one logind looks for the session that asks, and a login without PAM has none.
ask_to_linger() { lingers || loginctl enable-linger "$(id -un)" >/dev/null 2>&1; }
)sh";

// Whether a scope of the user's systemd can be made that stays when nobody is logged in.
constexpr std::string_view kStartAgent = R"sh(
rb_how=daemon
if has_manager; then
  ask_to_linger
  if lingers && systemd-run --user --scope --quiet --collect --unit="$rb_unit-$$" \
      "$rb_program" daemon start "$rb_dir" agent --dir "$rb_dir"; then rb_how=systemd; fi
fi
if [ $rb_how = daemon ]; then "$rb_program" daemon start "$rb_dir" agent --dir "$rb_dir" || exit 1; fi
sleep 0.2
if ! "$rb_program" daemon running "$rb_dir" >/dev/null; then
  echo "the agent ended as it started; the end of its log:" >&2; tail -n 8 "$rb_dir/daemon.log" >&2; exit 1
fi
echo "rubato-agent $rb_was $rb_how"
rb_keep=$rb_program
)sh";

std::string write_file_words(const std::string& name, const std::string& text) {
  return fmt::format("printf %s {} >\"$rb_dir/{}.new\" && mv -f \"$rb_dir/{}.new\" \"$rb_dir/{}\" || exit 1\n",
                     shell_quote(text), name, name, name);
}

// "$rb_keep": a program, or nothing. One that has just been sent has no link yet. bin/rubato is for people who type:
// it holds a program only as long as the machine is used.
constexpr std::string_view kTidy = R"sh(
rb_runs() { for rb_l in /proc/[0-9]*/exe; do [ "$rb_l" -ef "$rb_f" ] && return 0; done; return 1; }
rb_wait=0; [ -n "$rb_keep" ] || rb_wait=30  # 3 s, in a purge: what was just ended may need a moment to be gone
for rb_f in "$HOME"/.rubato/bin/rubato-* "$HOME"/.rubato/bin/.draft-*; do
  [ -f "$rb_f" ] || continue
  if [ -n "$rb_keep" ]; then
    [ "$rb_f" -ef "$rb_keep" ] && continue
    [ -n "$(find "$rb_f" -mmin +60 2>/dev/null)" ] || continue
  fi
  for rb_l in "${rb_keep:+$HOME/.rubato/bin/rubato}" "$HOME"/.rubato/clusters/*/nodes/*/program; do
    [ "$rb_l" -ef "$rb_f" ] && continue 2
  done
  while rb_runs; do
    [ "$rb_wait" -gt 0 ] || continue 2
    rb_wait=$((rb_wait - 1)); sleep 0.1
  done
  rm -f "$rb_f"
done
[ -e "$HOME"/.rubato/bin/rubato ] || rm -f "$HOME"/.rubato/bin/rubato
rmdir "$HOME"/.rubato/clusters/*/nodes "$HOME"/.rubato/clusters/* "$HOME"/.rubato/clusters "$HOME"/.rubato/bin \
  "$HOME"/.rubato 2>/dev/null
true
)sh";

// "$rb_c": the cluster. A name that begins as another's is not the same: screen's names end with a dot. tmux may leave
// its socket behind.
constexpr std::string_view kEndSessions = R"sh(
rb_sessions() {
  if command -v tmux >/dev/null 2>&1; then tmux -L "rubato-$rb_c" list-sessions 2>/dev/null; fi
  if command -v screen >/dev/null 2>&1; then
    screen -ls 2>/dev/null | sed -n "s/^[[:space:]]*\([0-9]*\.rubato-$rb_c\.\)[[:space:]].*/\1/p"
  fi
}
if [ -n "$(rb_sessions)" ]; then
  tmux -L "rubato-$rb_c" kill-server 2>/dev/null
  rb_sessions | while read -r rb_s rb_rest; do screen -S "$rb_s" -X quit >/dev/null 2>&1; done
  rb_i=0; while [ -n "$(rb_sessions)" ] && [ $rb_i -lt 50 ]; do sleep 0.1; rb_i=$((rb_i + 1)); done
  if [ -n "$(rb_sessions)" ]; then echo "a session of rubato-$rb_c does not end" >&2; rb_left=1; fi
fi
rm -f "${TMUX_TMPDIR:-/tmp}/tmux-$(id -u)/rubato-$rb_c" "$HOME/.rubato/stop-$rb_c.log"
)sh";

// "$rb_c", "$rb_grace". Each node's set-up and agent are ended as its head would end them.
constexpr std::string_view kPurgeNodes = R"sh(
rb_left=0
for rb_n in "$HOME/.rubato/clusters/$rb_c/nodes"/*; do
  [ -d "$rb_n" ] || continue
  rb_dir=$(cd "$rb_n" && pwd -P) || { rb_left=1; continue; }
  if [ -x "$rb_dir/program" ]; then "$rb_dir/program" daemon --grace "$rb_grace" stop "$rb_dir" || rb_left=1; fi
  [ "$rb_left" = 0 ] && { rm -rf "$rb_dir" || rb_left=1; }
done
[ "$rb_left" = 0 ] && { rm -rf "$HOME/.rubato/clusters/$rb_c" || rb_left=1; }
)sh";

std::string end_agent_words(const std::string& folder, Duration grace) {
  return fmt::format(
      "rb_dir={}\n[ -d \"$rb_dir\" ] || exit 0\nrb_dir=$(cd \"$rb_dir\" && pwd -P) || exit 1\n{}"
      "if [ -x \"$rb_dir/program\" ]; then \"$rb_dir/program\" daemon --grace {}s stop \"$rb_dir\" || exit 1; fi\n",
      quote_path(folder), kEndOldSetup, to_ms(grace) / 1000);
}

}  // namespace

std::string lingering_script() { return std::string(kLingering); }

std::string probe_script(const std::string& folder) {
  return fmt::format("rb_dir={}\nif read -r r 2>/dev/null <\"$rb_dir/runtime\"; then echo \"rubato-runtime $r\"; fi\n",
                     quote_path(folder));
}

std::string command_script(const std::string& folder, const std::string& command) {
  return fmt::format(
      "rb_dir={}\nmkdir -p \"$rb_dir\" && chmod 700 \"$rb_dir\" || exit 1\n{}"
      "echo \"$$ $(started $$)\" >\"$rb_dir/setup.pid\"\n"
      "unset rb_dir rb_old rb_since\n(eval {})\nc=$?\nrm -f {}/setup.pid\nexit $c\n",
      quote_path(folder), kEndOldSetup, shell_quote(command), quote_path(folder));
}

std::string agent_script(const std::string& folder, const std::string& program, const std::string& unit,
                         const NodeSetupSpec& spec, const std::string& agent_json) {
  std::string script = fmt::format(
      "rb_umask=$(umask)\numask 077\nrb_dir={}\nrb_program={}\nrb_unit={}\nrb_was=started\nmkdir -p \"$rb_dir\" && "
      "chmod 700 \"$rb_dir\" "
      "|| exit 1\n"
      "rb_dir=$(cd \"$rb_dir\" && pwd -P) || exit 1\n{}rm -f \"$rb_dir/setup.pid\"\n",
      quote_path(folder), quote_path(program), shell_quote(unit), kEndOldSetup);
  if (!spec.runtime_hash.empty()) script += write_file_words("runtime", spec.runtime_hash + "\n");
  // An agent that runs with the same agent.json is the wanted one; what else is new was put beside it.
  const char* same = spec.keep_running ? "true"
                     : spec.restart    ? "false"
                                       : "[ \"$(cat \"$rb_dir/agent.json\")\" = \"$rb_wanted\" ]";
  script += fmt::format(
      "ln -sfn \"$rb_program\" \"$rb_dir/program\"\nrb_wanted={}\n"
      "if \"$rb_program\" daemon running \"$rb_dir\" >/dev/null; then\n"
      "  if {}; then echo 'rubato-agent running'; exit 0; fi\n"
      "  \"$rb_program\" daemon stop \"$rb_dir\" || exit 1; rb_was=restarted\nfi\n",
      shell_quote(std::string(trim(agent_json))), same);
  script += write_file_words("ca.pem", spec.identity.ca);
  script += write_file_words("node.pem", spec.identity.certificate);
  script += write_file_words("node.key", spec.identity.key);
  script += write_file_words("agent.json", agent_json);
  script += "umask \"$rb_umask\"\n";  // the workers' files are the person's business
  for (const std::string& command : spec.before_agent) {
    const std::string message = shell_quote(fmt::format("`{}` failed, and the agent was not started", command));
    script += fmt::format("eval {} || {{ echo {} >&2; exit 1; }}\n", shell_quote(command), message);
  }
  return script + lingering_script() + std::string(kStartAgent) + std::string(kTidy);
}

std::string salvage_script(const std::string& folder, Duration grace) {
  return end_agent_words(folder, grace) +
         "if [ -x \"$rb_dir/program\" ] && [ -f \"$rb_dir/agent.json\" ]; then\n"
         "  \"$rb_dir/program\" agent --deliver --dir \"$rb_dir\"\nfi\n";
}

std::string stop_script(const std::string& folder, Duration grace) {
  return end_agent_words(folder, grace) +
         "rb_keep=$(readlink \"$rb_dir/program\"); rb_keep=${rb_keep:-/}; rm -rf \"$rb_dir\" || exit 1\n" +
         std::string(kTidy);
}

std::string tidy_script(const std::string& keep) { return fmt::format("rb_keep={}\n{}", keep, kTidy); }

std::string end_sessions_script(const std::string& cluster) {
  return fmt::format("rb_left=0\nrb_c={}\n{}[ \"$rb_left\" = 0 ]\n", shell_quote(cluster), kEndSessions);
}

std::string purge_script(const std::string& cluster, const std::string& docker_rm, Duration grace) {
  std::string script = fmt::format("rb_c={}\nrb_grace={}s\n{}", shell_quote(cluster), to_ms(grace) / 1000, kPurgeNodes);
  if (!docker_rm.empty()) script += docker_rm + "\n";
  return script + std::string(kEndSessions) + "rb_keep=\n" + std::string(kTidy) + "[ \"$rb_left\" = 0 ]\n";
}

std::string running_script(const std::string& folder) {
  return fmt::format(
      "rb_dir={}\n[ -x \"$rb_dir/program\" ] && \"$rb_dir/program\" daemon running \"$rb_dir\" >/dev/null\n",
      quote_path(folder));
}

}  // namespace rubato::provider
