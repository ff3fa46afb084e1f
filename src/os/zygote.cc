#include "os/zygote.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "os/child.h"
#include "os/proc_scan.h"
#include "os/runtime.h"

namespace rubato::embedded {
extern const char zygote[];
}

namespace rubato::os {

namespace {

using Json = nlohmann::json;

// A fork that takes longer means that the interpreter hangs.
constexpr auto kForkPatience = 10s;
// How long it leaves the processor to the first workers, which import the same (1 to 5 s with torch). It must not wait
// for ever: training that keeps all processors busy would starve it.
constexpr auto kGiveWay = 3s;
// Between the end of its socket and its end.
constexpr auto kEndPatience = 100ms;

// JSON holds text, but arguments and variables are bytes: each byte becomes the character of that number.
std::string as_text(const std::string& bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      text.push_back(c);
    } else {
      text.push_back(static_cast<char>(0xc0 | (byte >> 6)));
      text.push_back(static_cast<char>(0x80 | (byte & 0x3f)));
    }
  }
  return text;
}

Json as_text(const std::vector<std::string>& list) {
  Json result = Json::array();
  for (const std::string& entry : list) result.push_back(as_text(entry));
  return result;
}

std::string_view name(PythonMain::Kind kind) {
  switch (kind) {
    case PythonMain::Kind::kScript:
      return "script";
    case PythonMain::Kind::kModule:
      return "module";
    case PythonMain::Kind::kRunPath:
      return "run_path";
  }
  CHECK(false);
  return {};
}

Json to_json(const PythonMain& main) {
  return Json{{"kind", name(main.kind)}, {"target", as_text(main.target)}, {"args", as_text(main.args)}};
}

// A length and JSON; see next_request() in zygote.py.
std::string request_of(const SpawnSpec& spec) {
  Json request = to_json(*spec.warm);
  request["argv"] = as_text(spec.argv);
  request["env"] = as_text(spec.env);
  request["cwd"] = as_text(spec.cwd);
  const std::string body = request.dump();
  const auto size = static_cast<uint32_t>(body.size());
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + body;
}

std::map<std::string, std::string> frozen_variables(const std::vector<std::string>& env) {
  constexpr std::string_view kPrefixes[] = {"PYTHON", "LD_",       "OMP_",     "GOMP_",   "KMP_",          "MKL_",
                                            "BLIS_",  "OPENBLAS_", "NUMEXPR_", "MALLOC_", "GLIBC_TUNABLES"};
  std::map<std::string, std::string> result;
  for (const std::string& entry : env) {
    const auto starts = [&entry](std::string_view prefix) { return entry.starts_with(prefix); };
    const size_t equals = entry.find('=');
    if (equals == std::string::npos || std::none_of(std::begin(kPrefixes), std::end(kPrefixes), starts)) continue;
    result[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  return result;
}

int poll_for(int fd, short events, Duration limit) {
  pollfd wanted{.fd = fd, .events = events, .revents = 0};
  int got = 0;
  do {
    got = ::poll(&wanted, 1, static_cast<int>(std::max<int64_t>(to_ms(limit), 0)));
  } while (got < 0 && errno == EINTR);
  return got;
}

}  // namespace

std::optional<std::string> frozen_difference(const std::vector<std::string>& imported_with,
                                             const std::vector<std::string>& wanted) {
  const std::map<std::string, std::string> before = frozen_variables(imported_with);
  const std::map<std::string, std::string> after = frozen_variables(wanted);
  for (const auto& [variable, value] : after) {
    const auto it = before.find(variable);
    if (it == before.end() || it->second != value) return variable;
  }
  for (const auto& [variable, value] : before) {
    if (!after.contains(variable)) return variable;
  }
  return std::nullopt;
}

void Zygote::Worker::release() {
  const char byte = 1;
  [[maybe_unused]] const ssize_t written = ::send(go.get(), &byte, 1, MSG_NOSIGNAL);
}

Zygote::Zygote(Runtime& runtime, std::shared_ptr<Family> family, PrewarmSpec spec, StateChange on_state)
    : runtime_(runtime),
      family_(std::move(family)),
      spec_(std::move(spec)),
      on_state_(std::move(on_state)),
      token_(family_->next_process_token()),
      socket_(runtime.io()),
      hurry_(runtime, [this] {
        sched_param parameter{};
        ::sched_getparam(0, &parameter);
        if (state_ == State::kStarting && interpreter_)
          ::sched_setscheduler(pid(), ::sched_getscheduler(0), &parameter);
      }) {
  if (!spec_.main) {
    turn_off("the program is not Python");
  } else {
    start();
  }
}

Zygote::~Zygote() { alive_.reset(); }

pid_t Zygote::pid() const { return interpreter_ ? interpreter_->pid() : -1; }

// The interpreter reads its program and its settings from the socket; what follows in argv is for people who look at
// ps.
ExecPlan Zygote::plan_for(const std::string& message) const {
  const size_t source_size = std::strlen(embedded::zygote);
  const std::string loader = fmt::format(
      "b=open(3,'rb',closefd=False).read({0});"
      "exec(compile(b[:{1}],'<rubato zygote>','exec'),{{'__name__':'rubato_zygote','config':b[{1}:]}})",
      message.size(), source_size);
  ExecPlan plan{.argv = spec_.interpreter, .env = family_->with_tokens(spec_.env, token_)};
  plan.argv.insert(plan.argv.end(), {"-c", loader, spec_.main->target});
  plan.argv.insert(plan.argv.end(), spec_.main->args.begin(), spec_.main->args.end());
  return plan;
}

void Zygote::start() {
  state_ = State::kStarting;
  received_ = {};
  ended_ = false;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    turn_off(fmt::format("cannot make a socket: {}", std::strerror(errno)));
    return;
  }
  socket_.assign(ends[0]);
  const Fd theirs = Fd(ends[1]).above(kChildFds);
  const Fd nothing = Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)).above(kChildFds);
  const Json config{{"modules", as_text(spec_.modules)}, {"main", to_json(*spec_.main)}};
  const std::string message = embedded::zygote + config.dump();
  ExecPlan plan = plan_for(message);
  plan.in = nothing.get();
  plan.control = theirs.get();
  try {
    ChildProcess::Start child{.pid = fork_exec(plan)};
    interpreter_ = std::make_unique<ChildProcess>(runtime_, family_, std::move(child));
  } catch (const Error& error) {
    turn_off(error.message);
    return;
  }
  hurry_.set(runtime_.now() + kGiveWay);
  send(message, nullptr, 0);  // if it fails, the interpreter is dying, and watch() will tell
  watch();
}

void Zygote::watch() {
  const pid_t watched = pid();
  socket_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [this, watched, alive = std::weak_ptr<int>(alive_)](const boost::system::error_code& error) {
                       if (error || alive.expired() || watched != pid()) return;
                       receive();
                       while (std::optional<std::string> line = next_line()) on_line(*line);
                       if (ended_ && state_ != State::kOff) died();
                       if (state_ != State::kOff && watched == pid()) watch();
                     });
}

void Zygote::receive() {
  char buffer[4096];
  while (true) {
    const ssize_t got = ::recv(socket_.native_handle(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got > 0) {
      received_.add({buffer, static_cast<size_t>(got)});
    } else {
      ended_ = ended_ || got == 0 || (errno != EAGAIN && errno != EINTR);
      return;
    }
  }
}

std::optional<std::string> Zygote::next_line() { return received_.next(); }

std::optional<std::string> Zygote::wait_for_line() {
  const Instant deadline = runtime_.now() + kForkPatience;
  while (true) {
    receive();
    std::optional<std::string> line = next_line();
    if (line || ended_ || runtime_.now() >= deadline) return line;
    poll_for(socket_.native_handle(), POLLIN, deadline - runtime_.now());
  }
}

void Zygote::on_line(const std::string& line) {
  const Json answer = Json::parse(line, nullptr, false);
  if (answer.contains("refused")) {
    turn_off(answer["refused"].get<std::string>());
  } else if (answer.contains("ready")) {
    state_ = State::kReady;
    boost::asio::post(runtime_.io(), [this, alive = std::weak_ptr<int>(alive_)] {
      if (!alive.expired() && on_state_) on_state_("");
    });
  }
}

void Zygote::died() {
  const Fd pidfd = open_pidfd(pid());
  if (pidfd) poll_for(pidfd.get(), POLLIN, kEndPatience);
  interpreter_->check_end();
  const std::optional<ExitStatus> status = interpreter_->status();
  interpreter_.reset();
  boost::system::error_code ignored;
  socket_.close(ignored);
  if (restarts_left_-- > 0) {
    start();
    return;
  }
  turn_off(fmt::format("the prewarmed interpreter died again and again{}",
                       status ? fmt::format(" (last: {})", describe(*status)) : ""));
}

void Zygote::turn_off(std::string reason) {
  if (state_ == State::kOff) return;
  state_ = State::kOff;
  boost::asio::post(runtime_.io(), [this, reason = std::move(reason), alive = std::weak_ptr<int>(alive_)] {
    if (alive.expired()) return;
    interpreter_.reset();
    boost::system::error_code ignored;
    socket_.close(ignored);
    if (on_state_) on_state_(reason);
  });
}

bool Zygote::send(const std::string& message, const int* fds, size_t fd_count) {
  alignas(cmsghdr) char ancillary[CMSG_SPACE(sizeof(int) * 8)] = {};
  const Instant deadline = runtime_.now() + kForkPatience;
  for (size_t sent = 0; sent < message.size();) {
    iovec part{.iov_base = const_cast<char*>(message.data()) + sent, .iov_len = message.size() - sent};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (sent == 0 && fd_count > 0) {
      header.msg_control = ancillary;
      header.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
      cmsghdr* rights = CMSG_FIRSTHDR(&header);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
      std::memcpy(CMSG_DATA(rights), fds, sizeof(int) * fd_count);
    }
    const ssize_t got = ::sendmsg(socket_.native_handle(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (got > 0) {
      sent += static_cast<size_t>(got);
    } else if (got < 0 && errno != EAGAIN && errno != EINTR) {
      return false;
    } else if (poll_for(socket_.native_handle(), POLLOUT, deadline - runtime_.now()) <= 0) {
      return false;
    }
  }
  return true;
}

bool Zygote::usable_for(const SpawnSpec& spec) {
  if (state_ == State::kOff) return false;
  receive();
  while (std::optional<std::string> line = next_line()) on_line(*line);
  if (ended_ && state_ != State::kOff) died();
  if (state_ != State::kReady) return false;
  const std::optional<std::string> frozen = frozen_difference(spec_.env, spec.env);
  if (frozen) turn_off(fmt::format("{} is not the same for the workers as at the import of the modules", *frozen));
  if (spec.argv.empty() || spec.argv.front() != spec_.interpreter.front()) {
    turn_off(fmt::format("the workers do not run {}", spec_.interpreter.front()));
  }
  return state_ == State::kReady;
}

std::optional<Zygote::Worker> Zygote::fork(const SpawnSpec& spec, const Stdio& stdio) {
  CHECK(spec.warm);
  if (!usable_for(spec)) return std::nullopt;
  int go[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, go) != 0) return std::nullopt;
  Worker worker{.pid = -1, .go = Fd(go[0])};
  const Fd theirs(go[1]);
  const auto or_ours = [](const Fd& fd, int ours) { return fd ? fd.get() : ours; };
  const int fds[] = {or_ours(stdio.in, 0), or_ours(stdio.out, 1), or_ours(stdio.err, 2), theirs.get()};
  for (const int fd : fds) {
    if (::fcntl(fd, F_GETFD) < 0) return std::nullopt;  // a closed standard stream cannot be sent
  }
  const std::optional<std::string> line = send(request_of(spec), fds, std::size(fds)) ? wait_for_line() : std::nullopt;
  if (!line) {
    died();
    return std::nullopt;
  }
  const Json answer = Json::parse(*line, nullptr, false);
  if (!answer.contains("pid")) {
    on_line(*line);
    return std::nullopt;
  }
  worker.pid = answer["pid"].get<pid_t>();
  return worker;
}

}  // namespace rubato::os
