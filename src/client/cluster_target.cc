#include "client/cluster_target.h"

#include <fmt/format.h>

#include "client/user_file.h"
#include "core/text.h"
#include "os/files.h"
#include "os/network.h"
#include "os/runtime.h"
#include "provider/node_plan.h"
#include "terminal/values.h"

namespace rubato::cli {
namespace {

constexpr int64_t kWorkersMax = 10'000;

constexpr Duration kDownloadMax = 30s;
constexpr size_t kFileBytesMax = size_t{1} << 20;

Task<int> download_into(os::Runtime& runtime, Endpoint endpoint, bool tls, std::string target, HttpResponse& response) {
  os::RealNetwork network(runtime);
  TlsFiles files;
  files.use_tls = tls;
  HttpRequest request;
  request.target = std::move(target);
  const Instant deadline = runtime.now() + kDownloadMax;
  response = co_await network.call(std::move(endpoint), std::move(files), std::move(request), deadline);
  co_return 0;
}

bool is_url(std::string_view path) { return path.starts_with("http://") || path.starts_with("https://"); }

// Ray takes the address of a file, too.
std::string download(const std::string& url) {
  const bool tls = url.starts_with("https://");
  const std::string rest = url.substr(url.find("://") + 3);
  const size_t slash = rest.find('/');
  const std::string target = slash == std::string::npos ? "/" : rest.substr(slash);
  os::Runtime runtime;
  HttpResponse response;
  runtime.run(download_into(runtime, parse_endpoint(rest.substr(0, slash), tls ? 443 : 80), tls, target, response));
  if (response.status != 200 || response.body.size() > kFileBytesMax) {
    throw Error(ErrorCode::kUsage,
                fmt::format("the cluster file at {} cannot be read: status {}, {} bytes", url, response.status,
                            response.body.size()),
                "", "give the address of the plain file; redirections are not followed");
  }
  return response.body;
}

struct LinePlace {
  size_t line = 0, column = 0;  // from 1
};

// Of "dir/c.yaml:12:3".
std::optional<LinePlace> line_place(const std::string& where) {
  const size_t column_at = where.rfind(':');
  if (column_at == std::string::npos || column_at == 0) return std::nullopt;
  const size_t line_at = where.rfind(':', column_at - 1);
  if (line_at == std::string::npos) return std::nullopt;
  try {
    return LinePlace{std::stoul(where.substr(line_at + 1)), std::stoul(where.substr(column_at + 1))};
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

size_t offset_of(const std::string& text, const LinePlace& place) {
  size_t at = 0;
  for (size_t line = 1; line < place.line && at != std::string::npos; ++line) {
    at = text.find('\n', at);
    if (at != std::string::npos) ++at;
  }
  return at == std::string::npos ? at : at + place.column - 1;
}

// Where a plain or quoted scalar ends that begins at `at`.
size_t scalar_end(const std::string& text, size_t at) {
  if (at < text.size() && (text[at] == '"' || text[at] == '\'')) {
    const size_t end = text.find(text[at], at + 1);
    return end == std::string::npos ? end : end + 1;
  }
  size_t end = at;
  while (end < text.size() && std::string_view("\n,}#").find(text[end]) == std::string_view::npos) ++end;
  while (end > at && (text[end - 1] == ' ' || text[end - 1] == '\r')) --end;
  return end;
}

// The text with another value for a key: where it stands, or as a line at the end. So the head's journal, which keeps
// the text, has what is in force, and every place in it is still the person's.
std::string with_value(const ClusterText& text, const std::string& path, const std::string& line_key,
                       const std::string& value) {
  const auto found = text.file.places.find(path);
  const auto place = found == text.file.places.end() ? std::nullopt : line_place(found->second);
  if (place) {
    const size_t at = offset_of(text.text, *place);
    const size_t end = at < text.text.size() ? scalar_end(text.text, at) : std::string::npos;
    if (end != std::string::npos) return text.text.substr(0, at) + value + text.text.substr(end);
  }
  std::string out = text.text;
  if (!out.empty() && out.back() != '\n') out += '\n';
  return out + line_key + ": " + value + "\n";
}

ClusterText changed(const ClusterText& before, const std::string& path, const std::string& key,
                    const std::string& value, const std::string& flag) {
  ClusterText after;
  after.path = before.path;
  after.text = with_value(before, path, key, value);
  after.file = read_cluster_file(after.text, after.path);
  if (!after.file.has(Severity::kError) || before.file.has(Severity::kError)) return after;
  for (const rubato::Finding& one : after.file.findings) {
    if (one.severity != Severity::kError) continue;
    throw Error(ErrorCode::kUsage, fmt::format("with {} {}: {}", flag, value, one.message), one.where,
                one.hint.empty() ? "change it in the file instead" : one.hint);
  }
  return after;
}

// The types whose limits a flag means: all but the head's.
std::vector<std::string> worker_types(const ClusterFile& file) {
  std::vector<std::string> out;
  for (const auto& [name, type] : file.types) {
    // Hosts of one's own are all of one type, the head's among them.
    if (name != file.head_type || type.max_workers > 0) out.push_back(name);
  }
  return out;
}

ClusterText with_shells(ClusterText text, const ParsedCommand& parsed) {
  const bool login = parsed.has("use-login-shells"), normal = parsed.has("use-normal-shells");
  if (login && normal) {
    throw Error(ErrorCode::kUsage, "--use-login-shells excludes --use-normal-shells", "", "drop one of them");
  }
  if (login == normal || login == text.file.commands.login_shells || text.file.provider.this_machine()) return text;
  return changed(text, "login_shells", "login_shells", login ? "yes" : "no",
                 login ? "--use-login-shells" : "--use-normal-shells");
}

}  // namespace

void throw_first_error(const ClusterFile& file) {
  for (const Severity severity : {Severity::kError, Severity::kUnfilled}) {
    for (const rubato::Finding& one : file.findings) {
      if (one.severity == severity) throw Error(ErrorCode::kUsage, one.message, one.where, one.hint);
    }
  }
}

std::string ClusterTarget::as_typed() const { return typed && text ? text->path : place.name; }

bool is_cluster_file(std::string_view word) {
  return word.ends_with(".yaml") || word.ends_with(".yml") || word.find('/') != std::string_view::npos;
}

ClusterText read_cluster_text(Files& files, const std::string& path) {
  ClusterText out;
  out.path = path;
  out.text = is_url(path) ? download(path)
                          : read_user_file(files, "the cluster file", path,
                                           "give the path of a file, or none for all of this machine");
  out.file = read_cluster_file(out.text, path);
  return out;
}

ClusterText with_overrides(ClusterText text, const ParsedCommand& parsed) {
  if (const Given* given = parsed.find("cluster-name")) {
    text = changed(text, "cluster_name", "cluster_name", given->values.back(), "--cluster-name");
  }
  if (const Given* given = parsed.find("max-workers")) {
    const std::string value = std::to_string(int_value(*given, 0, kWorkersMax));
    text = changed(text, "autoscaling.max_workers", "max_workers", value, "--max-workers");
  }
  if (const Given* given = parsed.find("min-workers")) {
    const std::string value = std::to_string(int_value(*given, 0, kWorkersMax));
    const auto types = worker_types(text.file);
    const bool per_type = !text.file.provider.head && types.size() == 1;
    const std::string path = per_type && text.file.places.contains("node_types." + types.front() + ".min_workers")
                                 ? "node_types." + types.front() + ".min_workers"
                                 : "autoscaling.min_workers";
    if (!text.file.provider.head && types.size() > 1) {
      throw bad_value(*given, "the file has several types of workers", "write min_workers in each of them");
    }
    text = changed(text, path, "min_workers", value, "--min-workers");
  }
  return with_shells(std::move(text), parsed);
}

std::string take_cluster_word(const ParsedCommand& parsed, std::vector<std::string>& arguments) {
  const Given* named = parsed.find("cluster");
  const bool by_flag = (named != nullptr && named->joint != '=') || parsed.has("cluster-name");
  if (arguments.empty() || (by_flag && !is_cluster_file(arguments.front()))) return "";
  std::string word = arguments.front();
  arguments.erase(arguments.begin());
  return word;
}

void require_up(const ClusterTarget& target, bool can_start) {
  if (target.known || target.head_here) return;
  const bool elsewhere = target.text && !target.text->file.provider.this_machine();
  std::string hint = fmt::format("start it with: rubato up {}{}", target.typed ? "" : "--cluster ", target.as_typed());
  if (can_start) hint += ", or add --start";
  if (elsewhere && target.typed) {
    hint += fmt::format("; if it runs, started from another machine: rubato connect {}", target.as_typed());
  }
  throw Error(ErrorCode::kNotFound,
              fmt::format("'{}' is not up{}", target.place.name, elsewhere ? ", as far as this machine knows" : ""), "",
              hint);
}

std::optional<provider::ContainerSpec> container_asked(const ParsedCommand& parsed, const ClusterTarget& target,
                                                       const std::string& worker_type) {
  const std::string where = parsed.value("run-env", "auto");
  if (where != "auto" && where != "host" && where != "docker") {
    throw bad_value(*parsed.find("run-env"), "expected auto, host or docker");
  }
  if (where == "host" || !target.text) return std::nullopt;
  const ClusterFile& file = target.text->file;
  const bool head = worker_type.empty();
  const std::string& type = head ? file.head_type : worker_type;
  std::optional<ContainerSpec> container;
  if (file.types.contains(type)) container = node_recipe_of(file, type, head).container;
  if (!container && where == "docker") {
    throw Error(ErrorCode::kUsage, "--run-env docker: the cluster file has no docker section", target.text->path,
                "drop the flag, or add docker with an image");
  }
  return container;
}

ClusterText without_min_workers(ClusterText text) {
  const std::vector<std::string> types = worker_types(text.file);
  for (const std::string& type : types) {
    if (text.file.types.at(type).min_workers == 0) continue;
    const std::string path = "node_types." + type + ".min_workers";
    const bool own = text.file.places.contains(path) && !text.file.places.contains("autoscaling.min_workers");
    text = changed(text, own ? path : "autoscaling.min_workers", "min_workers", "0", "--workers-only");
  }
  return text;
}

ClusterTarget known_cluster(const ParsedCommand& parsed, const Shell& shell, const std::string& word,
                            const ClusterPlace& place) {
  os::RealFiles files;
  ClusterTarget out;
  out.place = place;
  if (is_cluster_file(word)) {
    out.text = with_overrides(read_cluster_text(files, word), parsed);
    out.typed = true;
  } else if (const std::string kept = place.folder + "/cluster.yaml"; files.exists(kept)) {
    out.text = read_cluster_text(files, kept);
  }
  out.remote = read_remote(files, place);
  out.known = out.remote.has_value();
  out.head_here = !out.known && files.exists(place.head_file());
  if (!out.remote && !out.head_here && out.text && !out.text->file.provider.this_machine() &&
      out.text->file.provider.head) {
    out.remote = remote_from(out.text->file, shell.env);
  }
  return out;
}

ClusterTarget find_cluster(const ParsedCommand& parsed, const Shell& shell, const std::string& word) {
  std::string name;
  if (is_cluster_file(word)) {
    os::RealFiles files;
    const ClusterText text = with_overrides(read_cluster_text(files, word), parsed);
    throw_first_error(text.file);
    name = text.file.name;
  } else {
    const std::string named = !word.empty() ? word : parsed.value("cluster-name", parsed.value("cluster"));
    name = choose_cluster(list_clusters(clusters_folder(shell.env)), named);
  }
  return known_cluster(parsed, shell, word, place_of(shell.env, name));
}

}  // namespace rubato::cli
