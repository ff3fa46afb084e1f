#include "petctl/user_data.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/text.h"

namespace rubato::embedded {
extern const char fetch_binary[];  // src/python/fetch_binary.py
}

namespace rubato::petctl {

std::string make_user_data(const NodeOrder& order, const std::string& binary, const std::string& sha256) {
  std::string environment = "export HOME=/root AWS_REGION=" + shell_quote(order.region);
  for (const auto& [name, url] : order.endpoints) environment += fmt::format(" {}={}", name, shell_quote(url));
  const std::vector<std::string> fetch = {"python3", "fetch_binary.py", order.bucket,      binary,
                                          sha256,    order.region,      order.s3_endpoint, "bin/rubato"};
  // Quoted here-documents: nothing in them is expanded. The order is one line that begins with '{'.
  std::string out = fmt::format(
      "#!/bin/bash\n"
      "# A {} of the job {}, made by rubato. It installs one file, {}/bin/rubato.\n"
      "set -eu\n"
      "umask 022\n"
      "{}\n"
      "mkdir -p {}/bin\n"
      "cd {}\n"
      "cat >order.json <<'RUBATO_ORDER'\n{}\nRUBATO_ORDER\n"
      "cat >fetch_binary.py <<'RUBATO_FETCH'\n{}RUBATO_FETCH\n"
      "{}\n"
      "exec bin/rubato aws-host order.json\n",
      to_string(order.role), order.job, kHome, environment, kHome, kHome, to_json(order), embedded::fetch_binary,
      shell_join(fetch));
  if (out.size() > kUserDataMax) {
    throw Error(ErrorCode::kUsage,
                fmt::format("the arguments of the script do not fit: user data would have {} bytes, EC2 takes {}",
                            out.size(), kUserDataMax),
                "", "put long arguments into a file of the folder that is uploaded");
  }
  return out;
}

}  // namespace rubato::petctl
