package job

import "encoding/json"

// Map says how a record of a billing file becomes a payload.
type Map struct {
	// Fields are the payload's fields; at least one. No field stands within another one.
	Fields []MapField
	// Keep lets the fields of a record that Fields does not name into the payload as they are. Default false: they are dropped.
	Keep bool
	// Currency is the dotted path, in the payload, of the currency by which amounts are divided. Empty: no field is MapMinor.
	Currency string
}

// MapField is one field of a payload, and where it comes from.
type MapField struct {
	// To is the field's dotted path in the payload.
	To string
	// From is the column, or the field of an NDJSON line. Not used where Value is set.
	From string
	// Value is a constant as JSON; nil = the field is taken from From.
	Value json.RawMessage
	// As says what is made of what stands in From. Default MapPlain.
	As MapAs
}

// MapAs is what a map makes of a value.
type MapAs string

// What a map can make of a value: nothing, a whole number of minor units, a number, true or false, and small or capital letters.
const (
	MapPlain   MapAs = ""
	MapMinor   MapAs = "minor"
	MapNumber  MapAs = "number"
	MapBoolean MapAs = "boolean"
	MapLower   MapAs = "lower"
	MapUpper   MapAs = "upper"
)

// MapWays lists what a map can be told to make of a value.
func MapWays() []MapAs { return []MapAs{MapMinor, MapNumber, MapBoolean, MapLower, MapUpper} }
