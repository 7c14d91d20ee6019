// The GSSAPI functions that Debian's libssh.a refers to. They return the results of a machine
// without Kerberos.
//
// Only Kerberos logins call them, and dsrun does not offer these. The real functions exist only in
// six shared libraries, and loading these takes longer than everything else in a start of dsrun.

#include <cstdint>

namespace {

constexpr std::uint32_t kUnavailable = 16U << 16U;  // GSS_S_UNAVAILABLE

}  // namespace

extern "C" {

extern void* const GSS_C_NT_HOSTBASED_SERVICE = nullptr;
extern void* const GSS_C_NT_USER_NAME = nullptr;

#define DS_NO_GSSAPI(name) \
  std::uint32_t name() { return kUnavailable; }

DS_NO_GSSAPI(gss_accept_sec_context)
DS_NO_GSSAPI(gss_acquire_cred)
DS_NO_GSSAPI(gss_add_oid_set_member)
DS_NO_GSSAPI(gss_create_empty_oid_set)
DS_NO_GSSAPI(gss_display_name)
DS_NO_GSSAPI(gss_display_status)
DS_NO_GSSAPI(gss_get_mic)
DS_NO_GSSAPI(gss_import_name)
DS_NO_GSSAPI(gss_indicate_mechs)
DS_NO_GSSAPI(gss_init_sec_context)
DS_NO_GSSAPI(gss_inquire_cred)
DS_NO_GSSAPI(gss_inquire_cred_by_mech)
DS_NO_GSSAPI(gss_release_buffer)
DS_NO_GSSAPI(gss_release_cred)
DS_NO_GSSAPI(gss_release_name)
DS_NO_GSSAPI(gss_release_oid_set)
DS_NO_GSSAPI(gss_test_oid_set_member)
DS_NO_GSSAPI(gss_verify_mic)

#undef DS_NO_GSSAPI

}  // extern "C"
