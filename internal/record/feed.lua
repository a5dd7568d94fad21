-- feed.lua: the outcomes that a script makes, which told.lua writes down when the script is over. A fragment: local functions only, of
-- the scripts of gateways with an outcome feed alone (scripts.go).
local feed_notes, feed_place, feed_record = {}, {}, nil

-- feed_job notes that a job has come to a state. What is told of it is what its record says when the script is over: once, however often that
-- changed on the way.
local function feed_job(record, state)
  if state ~= 'done' and state ~= 'parked' and state ~= 'discarded' or feed_place[record] then return end
  feed_record = record
  feed_notes[#feed_notes + 1] = record
  feed_place[record] = #feed_notes
end

-- feed_batch notes that no job of a batch is live any more; record is that of one of its jobs.
local function feed_batch(record, batch)
  feed_record = record
  feed_notes[#feed_notes + 1] = {batch}
end
