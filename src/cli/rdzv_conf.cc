#include "cli/rdzv_conf.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "core/text.h"
#include "terminal/values.h"

namespace rubato::cli {
namespace {

// A setting on its way: `given` has the one value, and names flag and key in errors.
struct Setting {
  std::string key;
  Given given;
};

Duration seconds_of(const Setting& setting) { return duration_value(setting.given, 1ms); }

bool bool_of(const Setting& setting) {
  const std::string word = to_lower(setting.given.values.back());
  // The words that torch's RendezvousParameters.get_as_bool knows.
  for (const char* yes : {"1", "true", "t", "yes", "y"}) {
    if (word == yes) return true;
  }
  for (const char* no : {"0", "false", "f", "no", "n"}) {
    if (word == no) return false;
  }
  throw bad_value(setting.given, "expected true or false");
}

class RdzvConfReader {
 public:
  RdzvConfReader() = default;
  RdzvConfReader(const RdzvConfReader&) = delete;  // its keys point into it

  void read(const Setting& setting) {
    const auto it = std::find_if(keys_.begin(), keys_.end(), [&](const Key& k) { return k.name == setting.key; });
    if (it == keys_.end()) {
      conf_.notes.push_back(unknown(setting));  // as torchrun, which hands it to a backend that does not ask for it
      return;
    }
    it->read(setting);
  }

  RdzvConf finish() {
    // torch's defaults: a node is lost after 3 missed keep-alives of 5 s each.
    if (keep_alive_ || attempts_) conf_.heartbeat = keep_alive_.value_or(5s) * attempts_.value_or(3);
    if (heartbeat_) conf_.heartbeat = heartbeat_;
    return std::move(conf_);
  }

 private:
  struct Key {
    std::string name;
    std::function<void(const Setting&)> read;
  };

  void store_type(const Setting& setting) {
    if (setting.given.values.back() == "tcp") return;
    throw bad_value(setting.given, "only tcp is here", "leave store_type out, and give --rdzv-endpoint HOST:PORT");
  }

  void protocol(const Setting& setting) {
    const std::string& value = setting.given.values.back();
    if (value != "http" && value != "https") throw bad_value(setting.given, "expected http or https");
    conf_.https = value == "https";
  }

  void note(const Setting& setting) {
    conf_.notes.push_back(fmt::format("{} means nothing here: rubato needs no such limit", setting.given.origin));
  }

  std::string unknown(const Setting& setting) const {
    std::vector<std::string> names;
    for (const Key& key : keys_) names.push_back(key.name);
    const auto near = nearest(setting.key, names);
    return fmt::format("{} has no effect: no such setting is known{}", setting.given.origin,
                       near ? fmt::format(" (did you mean {}?)", *near) : "");
  }

  std::function<void(const Setting&)> to(std::string& place) {
    return [&place](const Setting& setting) { place = setting.given.values.back(); };
  }
  std::function<void(const Setting&)> to(std::optional<Duration>& place) {
    return [&place](const Setting& setting) { place = seconds_of(setting); };
  }
  std::function<void(const Setting&)> to(std::optional<int>& place, int min) {
    return [&place, min](const Setting& setting) { place = int_value(setting.given, min, 1'000'000); };
  }
  std::function<void(const Setting&)> noted() {
    return [this](const Setting& setting) { note(setting); };
  }

  RdzvConf conf_;
  std::optional<Duration> keep_alive_, heartbeat_;
  std::optional<int> attempts_;
  const std::vector<Key> keys_ = {
      {"join_timeout", to(conf_.join_timeout)},
      {"timeout", to(conf_.join_timeout)},  // the name of the static and etcd-v2 backends
      {"last_call_timeout", to(conf_.last_call)},
      {"keep_alive_interval", to(keep_alive_)},
      {"keep_alive_max_attempt", to(attempts_, 1)},
      {"heartbeat", to(heartbeat_)},
      {"rank", to(conf_.rank, 0)},
      {"is_host", [this](const Setting& setting) { conf_.is_host = bool_of(setting); }},
      {"identity", to(conf_.identity)},
      {"store_type", [this](const Setting& setting) { store_type(setting); }},
      {"protocol", [this](const Setting& setting) { protocol(setting); }},
      {"cacert", to(conf_.ca)},
      {"ca_cert", to(conf_.ca)},
      {"cert", to(conf_.certificate)},
      {"ssl_cert", to(conf_.certificate)},
      {"key", to(conf_.key)},
      {"ssl_cert_key", to(conf_.key)},
      {"close_timeout", noted()},
      {"read_timeout", noted()},
      {"heartbeat_timeout", noted()},
      {"etcd_prefix", noted()},
      {"use_libuv", noted()},
  };
};

// Quotes that a shell did not take, as in an argument list of Python: "'join_timeout=5,last_call_timeout=1'".
std::string_view without_quotes(std::string_view text) {
  text = trim(text);
  while (!text.empty() && (text.front() == '\'' || text.front() == '"')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == '\'' || text.back() == '"')) text.remove_suffix(1);
  return trim(text);
}

}  // namespace

RdzvConf parse_rdzv_conf(const Given& given) {
  RdzvConfReader reader;
  if (without_quotes(given.values.back()).empty()) return reader.finish();  // torchrun's default is ""
  for (const std::string_view part : split(given.values.back(), ',')) {
    const auto pair = split_once(part, '=');
    const std::string key(pair ? without_quotes(pair->first) : "");
    const std::string value(pair ? without_quotes(pair->second) : "");
    if (key.empty() || value.empty()) {
      throw Error(ErrorCode::kUsage, fmt::format("{}: '{}' is not KEY=VALUE", given.origin, part), "",
                  "write --rdzv-conf join_timeout=600,last_call_timeout=5");
    }
    const Setting setting{.key = key,
                          .given = {.values = {value}, .origin = given.origin + given.joint + key, .joint = '='}};
    reader.read(setting);
  }
  const RdzvConf conf = reader.finish();
  if (conf.key.empty() != conf.certificate.empty()) {
    throw Error(ErrorCode::kUsage, fmt::format("{}: cert and key belong together, only one is given", given.origin), "",
                "give cert=FILE,key=FILE");
  }
  return conf;
}

}  // namespace rubato::cli
