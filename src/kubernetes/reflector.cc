#include "kubernetes/reflector.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/scope.h"
#include "kubernetes/list_document.h"

namespace rubato::kubernetes {

namespace {

constexpr Duration kPauseFirst = 200ms;
constexpr Duration kPauseMax = 15s;
constexpr Duration kWatchHasty = 1s;
constexpr int kWatchLeast_s = 240;
constexpr uint64_t kWatchSpread_s = 120;  // so that watches do not all end at once

// Runs the watch and closes the channel behind its last line.
Task<void> run_watch(Client& client, WatchStart start, Channel<std::string>& chunks,
                     std::optional<HttpResponse>& answer, std::string& failure) {
  try {
    Task<HttpResponse> watching = client.watch(std::move(start), chunks);
    answer = co_await std::move(watching);
  } catch (const Error& error) {
    failure = error.message;
  }
  chunks.close();
}

}  // namespace

Reflector::Reflector(Client& client, ReflectorSpec spec, ObjectSink& sink, Log log)
    : client_(client), spec_(std::move(spec)), sink_(sink), log_(std::move(log)) {}

void Reflector::warn(const std::string& why) {
  // The address of a watch has a time-out that is drawn anew each time.
  const size_t query = why.find('?');
  const size_t reason = why.rfind(": ");
  const std::string kind = query == std::string::npos ? why : why.substr(reason == std::string::npos ? 0 : reason);
  if (kind == last_warning_) return;
  last_warning_ = kind;
  log_.warning("cannot follow", {{"resource", spec_.resource.plural}, {"why", why}});
}

Task<void> Reflector::pause(const std::string& why) {
  warn(why);
  const Duration most = std::min<Duration>(kPauseMax, kPauseFirst * (1 << std::min(failures_, 8)));
  ++failures_;
  const auto spread = static_cast<uint64_t>(most.count() / 2 + 1);
  const Duration wait = most / 2 + Duration(client_.world().random.below(spread));
  co_await Sleep(client_.world().clock.loop(), client_.world().clock.now() + wait);
}

Task<void> Reflector::list() {
  std::string next;
  bool begun = false;
  do {
    Task<ListPage> asked =
        client_.list(spec_.resource, spec_.namespace_name, spec_.label_selector, spec_.page_size, next);
    const ListPage page = co_await std::move(asked);
    const std::string what = "list " + spec_.resource.plural;
    const ListDocument list = cut_list(page.body, what);
    if (!std::exchange(begun, true)) sink_.begin_list(start_of(list.resource_version));
    for (const std::string_view item : list.items) sink_.put(read_item(item, what));
    version_ = list.resource_version;
    next = list.next;
  } while (!next.empty());
  sink_.end_list();
  expired_ = false;
}

ListStart Reflector::start_of(const std::string& version) const {
  ListStart start;
  start.version = version_number(version);
  start.rewound = start.version < version_number(version_);
  return start;
}

bool Reflector::apply(WatchEvent event) {
  switch (event.type) {
    case WatchType::kAdded:
    case WatchType::kModified:
      sink_.put(event.object);
      break;
    case WatchType::kDeleted:
      sink_.remove(event.object);
      break;
    case WatchType::kBookmark:
      break;
    case WatchType::kExpired:
      expired_ = true;
      return false;
    case WatchType::kFailed:
      warn(event.message);
      return false;
  }
  version_ = event.resource_version;
  failures_ = 0;
  last_warning_.clear();
  return true;
}

Task<bool> Reflector::watch() {
  World& world = client_.world();
  WatchStart start;
  start.resource = spec_.resource;
  start.namespace_name = spec_.namespace_name;
  start.label_selector = spec_.label_selector;
  start.resource_version = version_;
  const std::string start_version = version_;
  const Instant began = world.clock.now();
  start.timeout_s = kWatchLeast_s + static_cast<int>(world.random.below(kWatchSpread_s));
  // The server ends it; one that does not, or somebody in between who is silent, is cut off by us.
  const Instant deadline = world.clock.now() + std::chrono::seconds(start.timeout_s) + 30s;
  Channel<std::string> chunks(world.clock.loop());
  std::optional<HttpResponse> answer;
  std::string failure;
  Scope scope(world.clock.loop());
  scope.spawn(run_watch(client_, std::move(start), chunks, answer, failure));
  WatchDecoder decoder;
  bool over = false;
  while (!over) {
    std::optional<std::string> chunk = co_await chunks.pop_until(deadline);
    if (!chunk) break;
    for (WatchEvent& event : decoder.add(*chunk)) over = over || !apply(std::move(event));
  }
  if (!over) {
    for (WatchEvent& event : decoder.finish()) over = over || !apply(std::move(event));
  }
  if (expired_ || (answer && answer->status == 410)) co_return false;
  const bool refused = answer && answer->status >= 400;
  // A server that ends each watch as soon as it begins must not be asked in a tight loop.
  const bool hasty = version_ == start_version && world.clock.now() - began < kWatchHasty;
  if (!failure.empty() || refused || over || hasty) {
    const std::string why = !failure.empty() ? failure
                            : refused        ? fmt::format("the server answered {}", answer->status)
                                             : "the watch failed";
    Task<void> pausing = pause(why);
    co_await std::move(pausing);
  }
  co_return true;
}

Task<void> Reflector::run() {
  while (true) {
    std::string failure;
    try {
      Task<void> listing = list();
      co_await std::move(listing);
      listed_once_ = true;
    } catch (const Error& error) {
      const bool hopeless = error.code == ErrorCode::kAuth || error.code == ErrorCode::kNotFound;
      if (hopeless && !listed_once_) throw;
      failure = error.message;
    }
    if (!failure.empty()) {
      Task<void> pausing = pause(failure);
      co_await std::move(pausing);
      continue;
    }
    const Instant listed = client_.world().clock.now();
    bool go_on = true;
    while (go_on) {
      Task<bool> watching = watch();
      go_on = co_await std::move(watching);
    }
    log_.info("the watch is too old: listing again", {{"resource", spec_.resource.plural}});
    if (client_.world().clock.now() - listed < kWatchHasty) {
      Task<void> pausing = pause("what was just listed is too old to watch");
      co_await std::move(pausing);
    }
  }
}

}  // namespace rubato::kubernetes
