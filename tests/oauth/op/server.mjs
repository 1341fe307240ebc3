// oidc-provider with rotating refresh tokens and reuse detection; extra routes under /_test make grants and count.
// It prints its issuer once it listens, and ends with its standard input.
import { createServer } from 'node:http';
import { Provider } from 'oidc-provider';

const lifetime = Number(process.env.ACCESS_TOKEN_SECONDS ?? 3600);
const clientJwk = JSON.parse(process.env.CLIENT_JWK);
const counts = { refreshed: 0, issued: 0, refused: 0, revoked: 0, errors: [] };

const server = createServer();
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [
      { client_id: 'cli:ent', client_secret: 'canary s%cr+t: &=~"', grant_types: ['client_credentials'], redirect_uris: [],
        response_types: [], scope: 'pay read' },
      { client_id: 'poster', client_secret: 'client-secret-canary-of-poster', grant_types: ['client_credentials'], redirect_uris: [],
        response_types: [], token_endpoint_auth_method: 'client_secret_post' },
      { client_id: 'signer', grant_types: ['client_credentials'], redirect_uris: [], response_types: [],
        token_endpoint_auth_method: 'private_key_jwt', token_endpoint_auth_signing_alg: 'RS256',
        jwks: { keys: [clientJwk] } },
      { client_id: 'app', client_secret: 'client-secret-canary', grant_types: ['refresh_token', 'authorization_code'],
        redirect_uris: ['https://app.test/cb'] },
    ],
    scopes: ['openid', 'offline_access', 'pay', 'read'],
    features: {
      clientCredentials: { enabled: true },
      introspection: { enabled: true, allowedPolicy: () => true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => undefined,
        useGrantedResource: () => true,
        getResourceServerInfo: (ctx, resource) => ({ scope: 'pay read', audience: resource, accessTokenTTL: lifetime,
          accessTokenFormat: 'opaque' }),
      },
    },
    rotateRefreshToken: true,
    ttl: { AccessToken: lifetime, ClientCredentials: lifetime, RefreshToken: 14 * 86400, Grant: 14 * 86400 },
    findAccount: (ctx, id) => ({ accountId: id, claims: async () => ({ sub: id }) }),
  });
  provider.on('grant.success', (ctx) => {
    if (ctx.oidc.params.grant_type === 'refresh_token') counts.refreshed += 1; else counts.issued += 1;
  });
  provider.on('grant.error', (ctx, error) => { counts.refused += 1; counts.errors.push(error.error_detail ?? error.message); });
  provider.on('grant.revoked', () => { counts.revoked += 1; });

  provider.use(async (ctx, next) => {
    if (!ctx.path.startsWith('/_test/')) return next();
    if (ctx.path === '/_test/counts') { ctx.body = counts; return undefined; }
    if (ctx.path === '/_test/grant') {
      const client = await provider.Client.find('app');
      const grant = new provider.Grant({ accountId: 'alice', clientId: 'app' });
      grant.addOIDCScope('openid offline_access');
      const grantId = await grant.save();
      const token = new provider.RefreshToken({
        client, accountId: 'alice', grantId, scope: 'openid offline_access', gty: 'authorization_code',
        claims: {}, authTime: Math.floor(Date.now() / 1000), expiresWithSession: false,
      });
      ctx.body = { refresh_token: await token.save() };
      return undefined;
    }
    if (ctx.path === '/_test/token') {
      const value = ctx.query.token;
      const found = (await provider.AccessToken.find(value)) ?? (await provider.ClientCredentials.find(value));
      ctx.body = found ? { active: found.isValid, client: found.clientId, subject: found.accountId ?? null,
        scope: found.scope ?? null, audience: found.aud ?? null } : { active: false };
      return undefined;
    }
    ctx.status = 404;
    return undefined;
  });
  server.on('request', provider.callback());
  console.log(issuer);
});
process.stdin.on('end', () => process.exit(0)).resume();
