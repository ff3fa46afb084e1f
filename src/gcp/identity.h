// Projects, who may do what in them, and service accounts for machines.
#pragma once

#include <string>
#include <vector>

#include "gcp/client.h"

namespace rubato::gcp {

struct Project {
  std::string id, number, state;  // state: ACTIVE, DELETE_REQUESTED, …
};
Task<Project> get_project(Client& client);

// Those of the permissions that we lack in the project, in their order.
Task<std::vector<std::string>> missing_permissions(Client& client, std::vector<std::string> permissions);

// A custom role of the project with exactly these permissions: made, given back when it was deleted, or brought up to
// date. Its name: "projects/P/roles/ID".
Task<std::string> ensure_role(Client& client, std::string id, std::string title, std::vector<std::string> permissions);

struct ServiceAccount {
  std::string name;  // the part before @: 6 to 30 of a-z, 0-9 and '-'
  std::string title, description;
};
std::string email_of(const std::string& name, const std::string& project);
// Found or made; its e-mail. `made` is set when it is new: others at Google hear of it some seconds later.
Task<std::string> ensure_service_account(Client& client, ServiceAccount account, bool& made);
Task<bool> has_service_account(Client& client, std::string email);
Task<bool> delete_service_account(Client& client, std::string email);  // false: there was none

// A role of the project's policy for one account, under a condition, which may be empty.
struct Grant {
  std::string role, email;
  std::string condition, title;
};
// Others' bindings are left as they are, also those that change meanwhile. May be repeated.
Task<void> grant_in_project(Client& client, Grant grant);
// May use another account for machines that it makes: roles/iam.serviceAccountUser on that account.
Task<void> grant_use_of_account(Client& client, std::string account, std::string email);
// Everything that the project's policy gives the account.
Task<bool> revoke_in_project(Client& client, std::string email);

}  // namespace rubato::gcp
