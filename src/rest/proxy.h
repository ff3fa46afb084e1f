// The proxy that a request goes through, as curl and clouds' own tools find it: https_proxy, HTTPS_PROXY, http_proxy,
// HTTP_PROXY, all_proxy, ALL_PROXY; and whom no_proxy, NO_PROXY excepts: names, their ends (".corp"), addresses,
// ranges of IPv4 (10.0.0.0/8); a port may follow; * for all. This machine itself is never asked through one.
#pragma once

#include <optional>

#include "rest/caller.h"
#include "rest/environment.h"
#include "rest/url.h"

namespace rubato::rest {

// nullopt: the server is asked directly. Throws a usage Error for what is no proxy's URL, or for a kind that we do not
// speak (https://, socks5://).
std::optional<HttpProxy> proxy_for(const Url& url, const Environment& env);
// A proxy that a setting names, whoever is asked through it. Throws as proxy_for.
HttpProxy read_proxy(const Sourced& found);

// The server of a URL, over the proxy that the variables name.
Target target_of(const Url& url, const Environment& env);

}  // namespace rubato::rest
