// Takes the code of an invitation from the address. The code is in the fragment, so that neither the request nor a log
// contains it. The page for signing in keeps the fragment and leads back with it.
const code = location.hash.slice(1);
const signIn = document.getElementById("sign-in");
if (code) {
  document.getElementById("token").value = code;
  document.getElementById("token-field").hidden = true;
  if (signIn) signIn.hash = code;
  history.replaceState(null, "", location.pathname);
}
