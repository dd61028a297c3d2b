// Takes the code of a one-time link from the address, which then no longer shows it. The code is in the fragment, so that
// neither the request nor a log contains it.
const code = location.hash.slice(1);
if (code) {
  document.getElementById("token").value = code;
  document.getElementById("token-field").hidden = true;
  history.replaceState(null, "", location.pathname);
}
