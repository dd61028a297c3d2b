// A certified OpenID provider, the npm package oidc-provider, with three people. Arguments: the package's main file, port,
// redirect address.
const [, , library, port, redirect] = process.argv;
const { default: Provider } = await import(library);

const people = {
  ada: { email: 'Ada@corp.example', email_verified: true, preferred_username: 'ada', groups: ['staff'] },
  grace: { email: 'grace@corp.example', email_verified: true, preferred_username: 'grace', groups: ['ops'] },
  mallory: { email: 'mallory@evil.example', email_verified: true, preferred_username: 'admin', groups: ['ops'] },
};

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{
    client_id: 'workspace',
    client_secret: 'canary secret & more',
    redirect_uris: [redirect],
    response_types: ['code'],
    grant_types: ['authorization_code'],
  }],
  pkce: { required: () => true },
  scopes: ['openid', 'email', 'profile', 'groups'],
  claims: {
    openid: ['sub'],
    email: ['email', 'email_verified'],
    profile: ['preferred_username'],
    groups: ['groups'],
  },
  findAccount: (_, id) => ({ accountId: id, claims: async () => ({ sub: id, ...people[id] }) }),
});
provider.listen(Number(port), '127.0.0.1', () => console.log('ready'));
