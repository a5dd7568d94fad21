-- take.lua returns the present access token, and decides which process fetches the next one. Composed after NowLua.
-- KEYS 1 access of these credentials
-- ARGV 1 now (µs, 0 = Redis's)  2 who asks  3 how long it may take to fetch one (µs)
-- returns {state, token ('' = none that lives), its number, how long it lives (µs), in how long the next one must be fetched (µs), how long to wait (µs)}. States:
--      good   the token lives, and it is too early for another one
--      fetch  the caller must fetch one, and no other process does for as long as that may take
--      busy   another process fetches one, for as long as that may take
--      later  it could not be fetched: it is not asked for again before
-- Hash: token (sealed, if payloads are)  number (µs when it was granted)  ends, renew (µs)  replaced (1: the one before it was refused)
--      dropped (1: the gateway refused the last one)  owner (who fetches)  asked (µs since when)  until (µs until when)
--      fails (in a row)  again (µs before which it is not asked for)  failed (µs since when)
-- A time that lies in the future is from before Redis's clock was set back: it does not count.
local call = redis.call
call('HDEL', KEYS[1], '') -- Redis lets a script that has begun to write continue, even if its memory is full
local now = now_us(ARGV[1])
local got = call('HMGET', KEYS[1], 'token', 'number', 'ends', 'renew', 'owner', 'until', 'again', 'asked', 'failed')
local ends, renew = tonumber(got[3] or '') or 0, tonumber(got[4] or '') or 0

local function begun(moment) return (tonumber(moment or '') or 0) <= now end
local lives = got[1] and ends > now and begun(got[2])

local function answer(state, wait)
  if not lives then return {state, '', '0', '0', '0', int(wait)} end
  return {state, got[1], got[2], int(ends - now), int(math.max(renew - now, 0)), int(wait)}
end

if lives and renew > now then return answer('good', 0) end
local fetched, again = tonumber(got[6] or '') or 0, tonumber(got[7] or '') or 0
if fetched > now and got[5] ~= ARGV[2] and begun(got[8]) then return answer('busy', fetched - now) end
if again > now and begun(got[9]) then return answer('later', again - now) end
call('HSET', KEYS[1], 'owner', ARGV[2], 'asked', int(now), 'until', int(now + tonumber(ARGV[3])))
local kept = math.max(ends, again, now + tonumber(ARGV[3])) + 120000000
call('PEXPIREAT', KEYS[1], int(kept / 1000))
return answer('fetch', 0)
