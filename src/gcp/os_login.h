// OS Login: users of machines and their SSH keys, kept by Google for its accounts. Where it is switched on (metadata
// `enable-oslogin`, of a machine or of the whole project), keys in metadata let nobody in.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "gcp/client.h"

namespace rubato::gcp {

// Whether a value of `enable-oslogin` switches it on.
bool is_on(std::string_view value);
// The project's own metadata: counts for machines whose metadata does not say.
Task<bool> project_uses_login(Client& client);

// Who we are, as OS Login names accounts. Throws kAuth where Google does not tell.
Task<std::string> login_account(Client& client);

struct LoginProfile {
  std::string user;                         // of machines of the client's project; empty: none yet
  std::map<std::string, std::string> keys;  // public, by their fingerprints
};
// Our own. Throws CloudError kAuth, with the roles to ask for, when we may not.
Task<LoginProfile> login_profile(Client& client, std::string account);

// Lets the key into every machine that the account may log in to; the user's name there. The key's comment becomes
// `comment`, by which remove_login_keys() finds it. A key that is there already stays as it is.
Task<std::string> ensure_login_key(Client& client, std::string account, std::string public_key, std::string comment);
// Those of our keys that have this comment: how many there were.
Task<size_t> remove_login_keys(Client& client, std::string account, std::string comment);

}  // namespace rubato::gcp
