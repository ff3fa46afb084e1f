#include "client/head_settings.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "os/files.h"
#include "terminal/document.h"

namespace rubato::cli {

std::string head_settings_file(const std::string& dir) { return dir + "/head/settings.json"; }

std::string settings_text(const HeadSettings& settings) {
  return nlohmann::json{{"store", settings.store},
                        {"listen", settings.listen},
                        {"isolated", settings.isolated},
                        {"provider", settings.provider},
                        {"address", settings.address}}
             .dump() +
         "\n";
}

HeadSettings read_head_settings(const std::string& dir) {
  HeadSettings out;
  const auto text = os::RealFiles().read(head_settings_file(dir));
  if (!text) return out;
  const nlohmann::json document = nlohmann::json::parse(*text, nullptr, false);
  if (!document.is_object()) {
    throw Error(ErrorCode::kUsage, "the head's settings are not JSON", head_settings_file(dir),
                "remove the file, and run rubato up with the flags you want");
  }
  out.store = raw_in(document, "store");
  out.listen = raw_in(document, "listen");
  out.isolated = document.value("isolated", false);
  out.provider = raw_in(document, "provider");
  out.address = raw_in(document, "address");
  return out;
}

}  // namespace rubato::cli
