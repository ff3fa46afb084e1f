#include "os/terminal.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>

#include "core/error.h"

namespace rubato::os {
namespace {

// The other screen without a cursor, and back.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l";
constexpr std::string_view kLeave = "\x1b[0m\x1b[?25h\x1b[?1049l";
constexpr std::array<int, 6> kEndings{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGABRT, SIGSEGV};

// For the signal handler: only these, and only async-signal-safe calls.
termios g_before{};
std::atomic<bool> g_taken{false};

void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
}

void restore() {
  if (!g_taken.exchange(false)) return;
  write_all(kLeave);
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &g_before);
}

void on_ending(int number) {
  restore();
  ::signal(number, SIG_DFL);
  ::raise(number);
}

void on_resize(int) {}  // interrupts poll(), which is all that is wanted

void install(int number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  ::sigaction(number, &action, nullptr);
}

struct Sequence {
  std::string_view bytes, name;
};
constexpr std::array<Sequence, 16> kSequences{{{"\x1b[A", "up"},
                                               {"\x1b[B", "down"},
                                               {"\x1b[C", "right"},
                                               {"\x1b[D", "left"},
                                               {"\x1bOA", "up"},
                                               {"\x1bOB", "down"},
                                               {"\x1bOC", "right"},
                                               {"\x1bOD", "left"},
                                               {"\x1b[5~", "page-up"},
                                               {"\x1b[6~", "page-down"},
                                               {"\x1b[H", "home"},
                                               {"\x1b[F", "end"},
                                               {"\x1b[1~", "home"},
                                               {"\x1b[4~", "end"},
                                               {"\x1bOH", "home"},
                                               {"\x1bOF", "end"}}};

// The length of an escape sequence, complete or not known to us; 0 when more bytes are needed.
size_t escape_size(const std::string& bytes) {
  if (bytes.size() < 2) return 0;
  if (bytes[1] == 'O') return bytes.size() < 3 ? 0 : 3;
  if (bytes[1] != '[') return 1;
  const size_t end = bytes.find_first_of("@ABCDEFGHIJKLMNOPQRSTUVWXYZ^_`abcdefghijklmnopqrstuvwxyz{|}~", 2);
  return end == std::string::npos ? 0 : end + 1;
}

size_t character_size(unsigned char lead) { return lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1; }

std::string plain_key(const std::string& character) {
  const auto byte = static_cast<unsigned char>(character[0]);
  if (byte == '\r' || byte == '\n') return "enter";
  if (byte == 0x7f || byte == 0x08) return "backspace";
  if (byte == '\t') return "tab";
  if (byte < 0x1b && byte > 0) return std::string("ctrl-") + static_cast<char>('a' + byte - 1);
  return character;
}

}  // namespace

size_t terminal_width(int fd) {
  winsize size{};
  if (::isatty(fd) != 1) return 0;
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string read_line() {
  std::string line;
  int c = std::getchar();
  for (; c != EOF && c != '\n'; c = std::getchar()) line += static_cast<char>(c);
  if (c == '\n') line += '\n';
  return line;
}

std::string read_input() {
  std::string text;
  char block[64 * 1024];
  for (size_t n = std::fread(block, 1, sizeof block, stdin); n > 0; n = std::fread(block, 1, sizeof block, stdin)) {
    text.append(block, n);
  }
  return text;
}

std::deque<std::string> take_keys(std::string& bytes, bool all) {
  std::deque<std::string> keys;
  while (!bytes.empty()) {
    if (bytes[0] == '\x1b') {
      size_t size = escape_size(bytes);
      if (size == 0 && !all) break;
      if (size == 0) size = bytes.size();
      const std::string sequence = bytes.substr(0, size);
      bytes.erase(0, size);
      if (sequence == "\x1b") keys.push_back("esc");
      const auto known = std::find_if(kSequences.begin(), kSequences.end(),
                                      [&](const Sequence& one) { return one.bytes == sequence; });
      if (known != kSequences.end()) keys.emplace_back(known->name);
      continue;
    }
    const size_t size = character_size(static_cast<unsigned char>(bytes[0]));
    if (bytes.size() < size && !all) break;
    keys.push_back(plain_key(bytes.substr(0, size)));
    bytes.erase(0, size);
  }
  return keys;
}

Terminal::Terminal() {
  if (::isatty(STDIN_FILENO) != 1 || ::isatty(STDOUT_FILENO) != 1) {
    throw Error(ErrorCode::kUsage, "a live screen needs a terminal", "", "for scripts there is rubato status --json");
  }
  CHECK(!g_taken);
  if (::tcgetattr(STDIN_FILENO, &g_before) != 0) {
    throw Error(ErrorCode::kFailed, "the terminal does not tell its settings");
  }
  g_taken = true;
  for (const int number : kEndings) install(number, on_ending);
  install(SIGWINCH, on_resize);
  termios raw = g_before;
  raw.c_lflag &= static_cast<tcflag_t>(~(ICANON | ECHO | ISIG | IEXTEN));
  raw.c_iflag &= static_cast<tcflag_t>(~(IXON | ICRNL | BRKINT | INPCK | ISTRIP));
  raw.c_cc[VMIN] = 0;
  raw.c_cc[VTIME] = 0;
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  write_all(kEnter);
}

Terminal::~Terminal() {
  restore();
  for (const int number : kEndings) ::signal(number, SIG_DFL);
  ::signal(SIGWINCH, SIG_DFL);
}

Terminal::Size Terminal::size() const {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_col, size.ws_row};
}

void Terminal::draw(std::string_view frame) {
  std::string out = "\x1b[H";
  for (const char c : frame) {
    if (c == '\n') {
      out += "\x1b[K\r\n";
    } else {
      out += c;
    }
  }
  write_all(out + "\x1b[K\x1b[J");
}

std::optional<std::string> Terminal::key(Duration wait) {
  if (keys_.empty()) {
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    // The rest of an escape sequence follows at once, even through ssh.
    const int limit_ms = bytes_.empty() ? static_cast<int>(std::max<int64_t>(0, to_ms(wait))) : 50;
    const int ready = ::poll(&input, 1, limit_ms);
    if (ready < 0) return std::nullopt;  // a signal: the size may have changed
    if (ready > 0) {
      char buffer[256];
      const ssize_t got = ::read(STDIN_FILENO, buffer, sizeof buffer);
      if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) return "eof";
      if (got > 0) bytes_.append(buffer, static_cast<size_t>(got));
    }
    keys_ = take_keys(bytes_, ready == 0);
    if (keys_.empty() && !bytes_.empty()) return key(wait);
  }
  if (keys_.empty()) return std::nullopt;
  std::string first = keys_.front();
  keys_.pop_front();
  return first;
}

}  // namespace rubato::os
