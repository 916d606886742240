#!/bin/bash
# A whole Ceph RADOS Gateway on loopback, in memory: one monitor, one memstore OSD, one gateway.
#
#   ceph_rgw.sh start DIR PORT MON_PORT_V2 MON_PORT_V1 ACCESS_KEY SECRET_KEY
#   ceph_rgw.sh stop DIR
#
# Debian: apt-get install --no-install-recommends ceph-mon ceph-osd ceph-mgr radosgw ceph-common
set -eu

# Killed outright: all of it is in memory and thrown away.
stop() {
    local file
    for file in "$DIR"/run/*.pid; do
        [ -e "$file" ] && kill -9 "$(cat "$file")" 2>/dev/null || true
    done
}

configure() {
    cat > "$DIR/ceph.conf" <<CONF
[global]
fsid = $FSID
mon host = [v2:127.0.0.1:$MON_V2/0,v1:127.0.0.1:$MON_V1/0]
mon initial members = a
public addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
ms mon client mode = crc
run dir = $DIR/run
log file = $DIR/log/\$name.log
admin socket = $DIR/run/\$name.asok
pid file = $DIR/run/\$name.pid
keyring = $DIR/keyring
mon data = $DIR/mon/ceph-\$id
osd data = $DIR/osd/ceph-\$id
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
osd objectstore = memstore
memstore device bytes = 4294967296
osd class load list = *
osd class default list = *
mon data avail crit = -1
mon max pg per osd = 1000
paxos propose interval = 0.05
paxos min wait = 0.01
[client.rgw.a]
rgw frontends = beast endpoint=127.0.0.1:$PORT
rgw enable ops log = false
rgw data = $DIR/rgw
rgw dynamic resharding = false
rgw run sync thread = false
CONF
}

start() {
    local conf="-c $DIR/ceph.conf" osd
    mkdir -p "$DIR"/{mon,osd/ceph-0,log,run,rgw}
    FSID=$(cat /proc/sys/kernel/random/uuid)
    osd=$(cat /proc/sys/kernel/random/uuid)
    configure
    ceph-authtool --create-keyring "$DIR/keyring" --gen-key -n mon. --cap mon 'allow *'
    ceph-authtool "$DIR/keyring" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *'
    monmaptool --create --fsid "$FSID" --addv a "[v2:127.0.0.1:$MON_V2,v1:127.0.0.1:$MON_V1]" "$DIR/monmap"
    ceph-mon $conf --mkfs -i a --monmap "$DIR/monmap" --keyring "$DIR/keyring"
    ceph-mon $conf -i a
    ceph $conf osd new "$osd"
    ceph-osd $conf -i 0 --mkfs --osd-uuid "$osd"
    ceph-osd $conf -i 0
    radosgw-admin $conf user create --uid=tests --display-name=tests --access-key="$ACCESS" --secret="$SECRET"
    radosgw $conf -n client.rgw.a
}

DIR=$2
case $1 in
    start) PORT=$3 MON_V2=$4 MON_V1=$5 ACCESS=$6 SECRET=$7; start ;;
    stop) stop ;;
esac
